package main

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	tracing "ttmem/tracer/kernel"
)

// check is a command that runs in the guest.
type check struct {
	name    string // without spaces
	title   string // of the column
	dir     string // in which it runs, below that of the input
	command []string
	limit   time.Duration
	short   bool // part of the short form
	machine machineKind
	// result interprets the output of a command that succeeded.
	result func(output string) (cell string, ok bool)
}

// A machineKind is what a check needs of the machine. Checks of one kind run in one boot.
type machineKind struct {
	arguments string // for the kernel's command line
	cpus      int    // at least
}

var machineKinds = []machineKind{{}, underSystemd, preempted}

var (
	underSystemd = machineKind{arguments: "ttmem.systemd"}
	// preempted is preempted in the kernel as well, and one of its processors may go.
	preempted = machineKind{arguments: "preempt=full", cpus: 2}
)

// checks are the columns of the table, in the order in which they run.
var checks = []check{
	{name: "doctor", title: "doctor", short: true, dir: "e2e",
		command: []string{"/vm/ttmem", "doctor"}, limit: 5 * time.Minute, result: func(string) (string, bool) { return "ok", true }},
	test("first", "first and last", "e2e", "TestFirstAndLast"),
	test("equality", "equality", "e2e", "TestEquality/0.81.1/python3.10/n150").
		figure(`\d+ checkpoints, (\d+) figures compared`, "%s figures equal").inShort(),
	test("stacks", "Python stacks", "e2e", "TestPythonPartOfTTNN/0.81.1_3.10").
		figure(`(\d+) of (\d+) stacks equal`, "%s of %s").inShort(),
	// The other cases take minutes and show nothing more.
	test("native", "native stacks", "tracer", "TestNativeStackEqualsGDB/0.81.1/operator_new_of_demo.py").
		figure(`(\d+) stacks equal gdb's`, "%s equal gdb's"),
	test("late", "late attach", "e2e", "TestLateAttach/0.81.1/n150").
		figure(`(\d+) attaches, (\d+) checkpoints after them`, "%s attaches equal"),
	// With everything disabled that Linux 5.15 lacks too: it is not in Debian.
	test("fallbacks", "all fallbacks", "e2e", "TestFallbacks/"+strings.Join(tracing.Optional, ",")+"/equality").
		figure(`\d+ checkpoints, (\d+) figures compared`, "%s figures equal"),
	test("oom", "out of memory", "e2e", "TestFailuresAreCaught/0.81.1"),
	test("nothing-left", "nothing left", "e2e", "TestNothingLeft"),
	test("unit", "systemd unit", "e2e", "TestUnit").on(underSystemd, "-unit"),
	fault("preempted", "preempted", "stopped in the kernel").
		figure(`(stopped in \d+ handlers)`, "%s"),
	fault("processors", "processors", "processor goes and comes"),
	fault("reused", "ids reused", "process id reused in a container while ttmem is stopped"),
	fault("lost-exit", "end lost", "end of a program lost"),
	fault("lost-exec", "exec lost", "exec lost"),
	fault("lost-fork", "fork lost", "events of a fork lost"),
	fault("clock", "clock behind", "clock behind in a time namespace"),
}

// testLimit bounds the time of a test. None takes a fifth of it on an emulated processor.
const testLimit = 15 * time.Minute

// test returns a check that runs one test of a package, or a subtest.
func test(name, title, pkg, path string) check {
	var pattern []string
	for part := range strings.SplitSeq(path, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	return check{
		name: name, title: title, dir: pkg, limit: testLimit + 30*time.Second,
		command: []string{"/vm/" + pkg + ".test", "-test.run=" + strings.Join(pattern, "/"), "-test.v", "-test.short",
			"-test.timeout=" + testLimit.String()},
		result: func(output string) (string, bool) { return passed(output, path) },
	}
}

// fault is a row of `make faults`.
func fault(name, title, row string) check {
	return test(name, title, "e2e/faults", "TestFaults/"+strings.ReplaceAll(row, " ", "_")).on(preempted, "-long")
}

// passed reports whether a test ran and passed: a skipped or missing test exits with 0 as
// well.
func passed(output, path string) (string, bool) {
	switch {
	case strings.Contains(output, "--- PASS: "+path+" "):
		return "ok", true
	case strings.Contains(output, "--- SKIP: "+path+" "):
		return "skipped", false
	}
	return "did not run", false
}

// figure shows what a test has logged in the cell.
func (c check) figure(logged, format string) check {
	re, ran := regexp.MustCompile(logged), c.result
	c.result = func(output string) (string, bool) {
		cell, ok := ran(output)
		found := re.FindStringSubmatch(output)
		if !ok || found == nil {
			return cell, ok
		}
		var values []any
		for _, v := range found[1:][:strings.Count(format, "%s")] {
			values = append(values, v)
		}
		return fmt.Sprintf(format, values...), true
	}
	return c
}

// on sets the kind of machine, and adds flags of the test.
func (c check) on(kind machineKind, flags ...string) check {
	c.machine, c.command = kind, append(c.command, flags...)
	return c
}

func (c check) inShort() check {
	c.short = true
	return c
}

// selectChecks returns the checks of a form, full or short, or those with the given names.
func selectChecks(form, names string) (list []check, err error) {
	if form != "" && form != "full" && form != "short" {
		return nil, fmt.Errorf("no form %q; available: full, short", form)
	}
	wanted := strings.FieldsFunc(names, func(r rune) bool { return r == ',' })
	for _, c := range checks {
		if names == "" && (c.short || form != "short") || slices.Contains(wanted, c.name) {
			list = append(list, c)
		}
	}
	if names != "" && len(list) != len(wanted) {
		var all []string
		for _, c := range checks {
			all = append(all, c.name)
		}
		return nil, fmt.Errorf("unknown check in %s; available: %s", names, strings.Join(all, ", "))
	}
	return list, nil
}

// cell is the result of a check on a kernel.
type cell struct {
	text   string
	ok     bool
	reason string // why it is not ok
}

// cell formats a result. Without a result the check did not run.
func (c check) cell(r *result) cell {
	switch {
	case r == nil:
		return cell{text: "not run", reason: "it did not run"}
	case r.status == 124 || r.status == 137: // of timeout
		return cell{text: "timed out", reason: fmt.Sprintf("no end within %v", c.limit)}
	case r.status != 0:
		return cell{text: "FAILED", reason: reasonOf(r.output, r.status)}
	}
	text, ok := c.result(r.output)
	if !ok {
		return cell{text: "FAILED", reason: text}
	}
	return cell{text: text, ok: true}
}

// reasonOf selects the most useful line of a failed command's output: ttmem's error, or
// else a test's assertion, or else the last line.
func reasonOf(output string, status int) string {
	for _, line := range strings.Split(output, "\n") {
		_, said, found := strings.Cut(line, "ttmem: ")
		if found && !strings.HasPrefix(said, "wrote ") {
			return said
		}
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Tracing does not work here") || strings.HasPrefix(line, "panic: ") {
			return line
		}
	}
	if m := asserted.FindStringSubmatch(output); m != nil {
		reason := m[1] + ": " + m[2]
		if m[3] != "" {
			return m[1] + ": " + m[3]
		}
		if m[4] != "" {
			reason += ": " + m[4] + ", not " + m[5]
		}
		return reason
	}
	if m := testSays.FindString(output); m != "" {
		return m
	}
	if line := strings.TrimSpace(lastLine(output)); line != "" {
		return line
	}
	return fmt.Sprintf("status %d", status)
}

var (
	// asserted matches qt's output: the test's own comment, or both values if they are
	// short.
	asserted = regexp.MustCompile(`(\w+_test\.go:\d+): ?\n\s+error:\n\s+(.+)(?:\n\s+comment:\n\s+(.+))?(?:\n\s+got:\n\s+(.{1,60})\n\s+want:\n\s+(.{1,60})\n)?`)
	testSays = regexp.MustCompile(`\w+_test\.go:\d+: .+`)
)
