package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestTable(t *testing.T) {
	list := []check{{name: "doctor", title: "doctor"}, {name: "late", title: "late attach"}}
	ok := row{kernel: "6.12", version: "6.12.107-1", cells: []cell{{text: "ok", ok: true}, {text: "3 attaches equal", ok: true}}}
	bad := row{kernel: "6.1", version: "6.1.176-1", logs: "/logs/6.1", failure: "kernel panic: oops",
		cells: []cell{{text: "FAILED", reason: "ttmem: no"}, {text: "not run", reason: "it did not run"}}}
	rows := []row{bad, ok}
	qt.Check(t, qt.Equals(textTable(list, rows), `kernel  version     doctor  late attach
6.1     6.1.176-1   FAILED  not run
6.12    6.12.107-1  ok      3 attaches equal
`))
	qt.Check(t, qt.Equals(markdownTable(list, rows), `| kernel | version | doctor | late attach |
|---|---|---|---|
| 6.1 | 6.1.176-1 | FAILED | not run |
| 6.12 | 6.12.107-1 | ok | 3 attaches equal |
`))
	qt.Check(t, qt.Equals(tally(rows), "2 passed, 2 failed"))
	qt.Check(t, qt.Equals(failures(list, rows), `6.1: kernel panic: oops
6.1: doctor: ttmem: no
6.1: logs are in /logs/6.1
`))
	qt.Check(t, qt.IsTrue(ok.ok()))
	qt.Check(t, qt.IsFalse(bad.ok()))
}

func TestCells(t *testing.T) {
	stacks := test("stacks", "stacks", "e2e", "TestStacks/0.81.1_3.10").figure(`(\d+) of (\d+) stacks equal`, "%s of %s")
	const pass = "    --- PASS: TestStacks/0.81.1_3.10 (1.00s)\n"
	for name, c := range map[string]struct {
		result *result
		want   cell
	}{
		"figure":    {&result{output: "x_test.go:1: 13 of 14 stacks equal, 9 frames\n" + pass}, cell{text: "13 of 14", ok: true}},
		"no figure": {&result{output: pass}, cell{text: "ok", ok: true}},
		"skipped":   {&result{output: "    --- SKIP: TestStacks/0.81.1_3.10 (1.00s)\n"}, cell{text: "FAILED", reason: "skipped"}},
		"no test":   {&result{output: "testing: warning: no tests to run\nPASS\n"}, cell{text: "FAILED", reason: "did not run"}},
		"failed": {&result{status: 1, output: "x_test.go:1: 14 of 14 stacks equal\nttmem: no BTF here\nFAIL\n"},
			cell{text: "FAILED", reason: "no BTF here"}},
		"asserted": {&result{status: 1, output: "x_test.go:1: ttmem: wrote 3 events to a file\n" +
			"    x_test.go:51: \n        error:\n          values are not equal\n        got:\n          int(21)\n        want:\n          int(0)\n        stack:\n"},
			cell{text: "FAILED", reason: "x_test.go:51: values are not equal: int(21), not int(0)"}},
		"commented": {&result{status: 1, output: "    x_test.go:5: \n        error:\n          value is false\n        comment:\n          2 stacks end early\n        got:\n          bool(false)\n        want:\n          bool(true)\n"},
			cell{text: "FAILED", reason: "x_test.go:5: 2 stacks end early"}},
		"asserted nil": {&result{status: 1, output: "    x_test.go:5: \n        error:\n          got non-nil value\n        got:\n          e\"no\"\n        stack:\n"},
			cell{text: "FAILED", reason: "x_test.go:5: got non-nil value"}},
		"crashed":   {&result{status: 139}, cell{text: "FAILED", reason: "status 139"}},
		"timed out": {&result{status: 124}, cell{text: "timed out", reason: "no end within 15m30s"}},
		"absent":    {nil, cell{text: "not run", reason: "it did not run"}},
	} {
		t.Run(name, func(t *testing.T) { qt.Check(t, qt.Equals(stacks.cell(c.result), c.want)) })
	}
}

func TestSelectChecks(t *testing.T) {
	names := func(form, names string) (list []string) {
		selected, err := selectChecks(form, names)
		qt.Assert(t, qt.IsNil(err))
		for _, c := range selected {
			list = append(list, c.name)
		}
		return list
	}
	qt.Check(t, qt.HasLen(names("full", ""), len(checks)))
	qt.Check(t, qt.DeepEquals(names("short", ""), []string{"doctor", "equality", "stacks"}))
	qt.Check(t, qt.DeepEquals(names("short", "oom,doctor"), []string{"doctor", "oom"}))
	_, err := selectChecks("full", "doctor,nothing")
	qt.Check(t, qt.ErrorMatches(err, `unknown check in doctor,nothing; available: doctor, .*`))
	_, err = selectChecks("long", "")
	qt.Check(t, qt.ErrorMatches(err, `no form "long"; available: full, short`))
}
