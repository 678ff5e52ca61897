package flags

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ttmem/aggregate/name"
)

// Error rewrites an error of cobra about a flag in ttmem's words.
func Error(c *cobra.Command, err error) error {
	see := fmt.Sprintf("; `%s --help` lists the flags", c.CommandPath())
	if !c.HasParent() {
		see = "; flags follow a command: `ttmem help` lists the commands"
	}
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
		if wrong.GetValue() == "" {
			return isEmpty(c, flagName(f))
		}
		return fmt.Errorf("%s %s: %s", flagName(f), wrong.GetValue(), whatIsWrong(f, wrong))
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return fmt.Errorf("unknown flag -%s%s", unknown.GetSpecifiedName(), see)
	case errors.As(err, &unknown):
		if like := similar(c, unknown.GetSpecifiedName()); len(like) > 0 {
			return fmt.Errorf("unknown flag --%s: did you mean --%s?", unknown.GetSpecifiedName(), strings.Join(like, " or --"))
		}
		return fmt.Errorf("unknown flag --%s%s", unknown.GetSpecifiedName(), see)
	case errors.As(err, &malformed):
		return fmt.Errorf("%s is not a flag%s", malformed.GetSpecifiedFlag(), see)
	}
	return fmt.Errorf("%w%s", err, see)
}

// similar returns the flags of a command that a misspelt name may mean.
func similar(c *cobra.Command, name string) []string {
	var names []string
	add := func(f *pflag.Flag) { names = append(names, f.Name) }
	c.LocalFlags().VisitAll(add)
	c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
		if TakesGlobal(c, f.Name) {
			add(f)
		}
	})
	return Similar(name, names)
}

// Similar returns the names that a misspelt one may mean.
func Similar(name string, names []string) []string {
	among := cobra.Command{SuggestionsMinimumDistance: min(2, len(name)/3)} // cobra compares names of commands
	for _, one := range names {
		among.AddCommand(&cobra.Command{Use: one, Run: func(*cobra.Command, []string) {}})
	}
	return among.SuggestionsFor(name)
}

// flagName returns a flag in its short form, if it has one.
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
			return notPID
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
		return "it takes no value: write --" + f.Name
	}
	return err.Unwrap().Error() // of one of ttmem's own types
}

// CompileGrep compiles the value of --grep; "" selects everything.
func CompileGrep(text string) (*regexp.Regexp, error) {
	if text == "" {
		return nil, nil
	}
	re, err := name.Compile(text)
	if err != nil {
		return nil, fmt.Errorf("--grep: %w", err)
	}
	return re, nil
}
