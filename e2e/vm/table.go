package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// row is the result of a kernel.
type row struct {
	kernel, version string
	cells           []cell
	failure         string // of the machine itself
	logs            string // the directory
}

func (r row) ok() bool {
	for _, c := range r.cells {
		if !c.ok {
			return false
		}
	}
	return r.failure == ""
}

func (r row) texts() []string {
	texts := []string{r.kernel, r.version}
	for _, c := range r.cells {
		texts = append(texts, c.text)
	}
	return texts
}

func header(list []check) []string {
	texts := []string{"kernel", "version"}
	for _, c := range list {
		texts = append(texts, c.title)
	}
	return texts
}

// textTable formats the table in columns of equal width.
func textTable(list []check, rows []row) string {
	lines := [][]string{header(list)}
	for _, r := range rows {
		lines = append(lines, r.texts())
	}
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, text := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(text))
		}
	}
	var b strings.Builder
	for _, line := range lines {
		for i, text := range line {
			if i == len(line)-1 {
				fmt.Fprintln(&b, text)
			} else {
				fmt.Fprintf(&b, "%-*s  ", widths[i], text)
			}
		}
	}
	return b.String()
}

// markdownTable formats the table as GitHub shows it.
func markdownTable(list []check, rows []row) string {
	var b strings.Builder
	line := func(texts []string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(texts, " | ")) }
	line(header(list))
	fmt.Fprintln(&b, strings.Repeat("|---", len(list)+2)+"|")
	for _, r := range rows {
		line(r.texts())
	}
	return b.String()
}

// failures has a line for each failure, with the path of its log.
func failures(list []check, rows []row) string {
	var b strings.Builder
	for _, r := range rows {
		if r.ok() {
			continue
		}
		if r.failure != "" {
			fmt.Fprintf(&b, "%s: %s\n", r.kernel, r.failure)
		}
		for i, c := range r.cells {
			if !c.ok && (r.failure == "" || c.text != "not run") {
				fmt.Fprintf(&b, "%s: %s: %s\n", r.kernel, list[i].title, c.reason)
			}
		}
		fmt.Fprintf(&b, "%s: logs are in %s\n", r.kernel, r.logs)
	}
	return b.String()
}

// tally counts passed and failed checks, in the form of test runners.
func tally(rows []row) string {
	passed, failed := 0, 0
	for _, r := range rows {
		for _, c := range r.cells {
			if c.ok {
				passed++
			} else {
				failed++
			}
		}
	}
	return fmt.Sprintf("%d passed, %d failed", passed, failed)
}
