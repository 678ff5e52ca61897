package flags

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Error is an error of cobra's about a flag in ttmem's own words.
func Error(c *cobra.Command, err error) error {
	see := fmt.Sprintf("; `%s --help` lists the flags", c.CommandPath())
	var missing *pflag.ValueRequiredError
	var wrong *pflag.InvalidValueError
	var unknown *pflag.NotExistError
	var malformed *pflag.InvalidSyntaxError
	switch {
	case errors.As(err, &missing):
		f := missing.GetFlag()
		what, _ := pflag.UnquoteUsage(f)
		return fmt.Errorf("%s: missing %s%s", flagName(f), what, see)
	case errors.As(err, &wrong):
		f := wrong.GetFlag()
		return fmt.Errorf("%s %s: %s", flagName(f), wrong.GetValue(), whatIsWrong(f, wrong))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s%s", unknown.GetSpecifiedName(), see)
	case errors.As(err, &unknown):
		return fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), see)
	case errors.As(err, &malformed):
		return fmt.Errorf("%s is no flag%s", malformed.GetSpecifiedFlag(), see)
	}
	return fmt.Errorf("%w%s", err, see)
}

// flagName is a flag in its short form, if it has one.
func flagName(f *pflag.Flag) string {
	if f.Shorthand != "" {
		return "-" + f.Shorthand
	}
	return "--" + f.Name
}

// whatIsWrong says why a flag does not take a value.
func whatIsWrong(f *pflag.Flag, err *pflag.InvalidValueError) string {
	_, notNumber := strconv.ParseFloat(err.GetValue(), 64)
	switch f.Value.Type() {
	case "int", "intSlice":
		switch {
		case f.Name == "pid":
			return "not a process id: `pgrep -af python` finds them"
		case notNumber == nil:
			return "not a whole number, or too large"
		}
		return "not a number"
	case "duration":
		if notNumber == nil {
			return fmt.Sprintf("missing unit: write %[1]ss for seconds, or %[1]sms", err.GetValue())
		}
		return "not a duration: give one such as 500ms, 30s or 5m"
	case "bool":
		return "neither true nor false"
	}
	return err.Unwrap().Error() // of a type of ttmem's own
}

// CompileGrep compiles the value of --grep; "" is none.
func CompileGrep(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := regexp.Compile(text)
	var wrong *syntax.Error
	if errors.As(err, &wrong) {
		return nil, fmt.Errorf("--grep %s: not a regular expression: %s", text, wrong.Code)
	}
	return re, err
}
