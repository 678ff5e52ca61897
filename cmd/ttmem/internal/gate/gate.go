// Package gate is the result of commands that check memory in CI: the flags, exit statuses, JUnit files and annotations
// of GitHub that they share.
package gate

import (
	"encoding/xml"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"ttmem/cmd/ttmem/internal/flags"
	"ttmem/cmd/ttmem/internal/output"
	"ttmem/cmd/ttmem/internal/term"
)

// The exit statuses: see docs/status.md.
const (
	Exceeded = 3
	Unjudged = 4 // not exceeded, but events were lost
)

// A Gate is the flags of a command that checks memory.
type Gate struct {
	// Above is the largest size that passes.
	Above flags.Size
	// Always is true if the command checks without --fail-above.
	Always  bool
	command *cobra.Command
	junit   string
}

// Register adds --fail-above and --junit.
func (g *Gate) Register(c *cobra.Command) {
	g.command = c
	flags.FailAbove(c, &g.Above)
	c.Flags().StringVar(&g.junit, "junit", "", "write the result of the check to `FILE`, as JUnit XML")
}

// Checks reports whether the command is to check.
func (g *Gate) Checks() bool { return g.Always || g.command.Flags().Changed("fail-above") }

// Check returns an error for flags that do not fit.
func (g *Gate) Check() error {
	if g.junit != "" && !g.Checks() {
		return errors.New("--junit has the result of a check: give --fail-above SIZE")
	}
	return nil
}

// A Finding is a line that exceeds.
type Finding struct {
	Text string
	// File is "" if the line is not known.
	File string
	Line int
}

func (f *Finding) String() string {
	if f.File == "" {
		return f.Text
	}
	return fmt.Sprintf("%s:%d: %s", f.File, f.Line, f.Text)
}

// A Result is what a check found.
type Result struct {
	// Of is what was checked, such as the name of a file.
	Of string
	// Exceeded says by how much; "" if nothing exceeds. Findings are its lines, largest first.
	Exceeded string
	Findings []Finding
	// Lost is true if events were lost.
	Lost bool
	// Status is the exit status for another reason.
	Status error
}

// Judge reports a result, and returns the exit status.
func (g *Gate) Judge(r Result) error {
	if !g.Checks() {
		return r.Status
	}
	kind, text, status := "", "", r.Status
	switch {
	case r.Exceeded != "":
		kind, text, status = "exceeded", r.Exceeded, term.ExitStatus(Exceeded)
		term.Warn(text)
	case r.Status != nil:
		kind, text = "failed", "the command failed, or part of the input could not be read"
	case r.Lost:
		kind, text, status = "lost", g.limit()+" is not exceeded, but events were lost: the result may be wrong (exit status 4)", term.ExitStatus(Unjudged)
		term.Warn(text)
	}
	if kind != "exceeded" {
		r.Findings = nil
	}
	if os.Getenv("GITHUB_ACTIONS") == "true" && kind != "" {
		for _, line := range annotations(g.command.CommandPath(), text, r.Findings, os.Getenv("GITHUB_WORKSPACE")) {
			term.Line(line)
		}
	}
	if g.junit == "" {
		return status
	}
	f, err := output.Create("--junit", g.junit)
	if err != nil {
		return errors.Join(err, status)
	}
	_, err = f.W.Write(junit(g.command.CommandPath(), r.Of, kind, text, r.Findings))
	return errors.Join(f.Finish(err), status)
}

// limit returns what was not exceeded.
func (g *Gate) limit() string {
	if g.command.Flags().Changed("fail-above") {
		return "--fail-above"
	}
	return "the baseline"
}

// mostAnnotations is how many of a step GitHub shows.
const mostAnnotations = 10

// annotations returns commands to GitHub's runner: one for each line of the program that is known, else one for all.
func annotations(command, text string, findings []Finding, workspace string) (lines []string) {
	for _, f := range findings {
		if f.File == "" || len(lines) == mostAnnotations {
			continue
		}
		file := f.File
		if within, err := filepath.Rel(workspace, file); workspace != "" && err == nil && filepath.IsLocal(within) {
			file = within
		}
		lines = append(lines, fmt.Sprintf("::error file=%s,line=%d,title=%s::%s", property.Replace(file), f.Line, property.Replace(command), data.Replace(f.Text)))
	}
	if len(lines) == 0 {
		lines = append(lines, fmt.Sprintf("::error title=%s::%s", property.Replace(command), data.Replace(text)))
	}
	return lines
}

// data and property escape the parts of such a command as GitHub's own toolkit does.
var (
	data     = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A")
	property = strings.NewReplacer("%", "%25", "\r", "%0D", "\n", "%0A", ":", "%3A", ",", "%2C")
)

type testSuites struct {
	XMLName  xml.Name `xml:"testsuites"`
	Tests    int      `xml:"tests,attr"`
	Failures int      `xml:"failures,attr"`
	Errors   int      `xml:"errors,attr"`
	Suite    struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Errors   int    `xml:"errors,attr"`
		Case     struct {
			Class   string   `xml:"classname,attr"`
			Name    string   `xml:"name,attr"`
			Failure *problem `xml:"failure"`
			Error   *problem `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

type problem struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// junit returns a check as a test: a failure if it exceeds, an error if that is not known.
func junit(command, of, kind, text string, findings []Finding) []byte {
	var doc testSuites
	s := &doc.Suite
	s.Name, s.Case.Class, s.Case.Name = command, command, of
	doc.Tests, s.Tests = 1, 1
	if kind != "" {
		p := &problem{Message: text, Type: kind, Text: text + "\n"}
		for i := range findings {
			p.Text += findings[i].String() + "\n"
		}
		if kind == "exceeded" {
			s.Case.Failure, s.Failures, doc.Failures = p, 1, 1
		} else {
			s.Case.Error, s.Errors, doc.Errors = p, 1, 1
		}
	}
	out, err := xml.MarshalIndent(&doc, "", " ")
	if err != nil {
		panic("ttmem: a JUnit document that XML cannot have: " + strconv.Quote(err.Error())) // its types are those above
	}
	return append([]byte(xml.Header), append(out, '\n')...)
}
