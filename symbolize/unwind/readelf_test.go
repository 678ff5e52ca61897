package unwind

import (
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// inRegister matches a register and its name in parentheses, r9 (r9), as readelf prints it.
var inRegister = regexp.MustCompile(`r\d+ \((\w+)\)`)

// readelf returns the rows that binutils prints. It has no expressions, and prints no rows
// for an FDE without instructions: those of its CIE hold.
func readelf(t *testing.T, path string) (functions []function) {
	var columns []string
	initial, signal := map[string]Rule{}, map[string]bool{}
	var current *Rule // of a CIE
	var cie string
	runTool(t, func(line string) {
		if strings.Contains(line, "(") {
			line = inRegister.ReplaceAllString(line, "$1")
		}
		words := strings.Fields(line)
		switch {
		case len(words) > 4 && words[3] == "CIE":
			cie = words[0]
			rule := Rule{}
			current = &rule
			signal[cie] = strings.Contains(words[4], "S")
			initial[cie] = Rule{}
		case len(words) > 5 && words[3] == "FDE":
			cie = strings.TrimPrefix(words[4], "cie=")
			start, end, ok := strings.Cut(strings.TrimPrefix(words[5], "pc="), "..")
			qt.Assert(t, qt.IsTrue(ok))
			f := function{span: span{hex(t, start), hex(t, end)}}
			f.rows = []at{{f.start, initial[cie]}}
			current = nil
			functions = append(functions, f)
		case len(words) > 1 && words[0] == "LOC":
			columns = words
		case len(words) == len(columns) && len(words) > 1 && len(words[0]) == 16:
			rule := readelfRule(t, columns, words)
			if signal[cie] {
				rule = Rule{CFA: Signal}
			}
			if current != nil {
				*current, initial[cie] = rule, rule
				return
			}
			f := &functions[len(functions)-1]
			addr := hex(t, words[0])
			if len(f.rows) == 1 && f.rows[0].offset == addr {
				f.rows = nil // the CIE's row was a guess
			}
			f.rows = append(f.rows, at{addr, rule})
		}
	}, "readelf", "--debug-dump=frames-interp,no-follow-links", "--wide", path)
	return functions
}

func readelfRule(t *testing.T, columns, words []string) Rule {
	t.Helper()
	r := Rule{}
	cfa, bp, ra, sp := words[1], "u", "u", "u"
	for i, c := range columns {
		switch c {
		case "rbp":
			bp = words[i]
		case "rsp":
			sp = words[i]
		case "ra":
			ra = words[i]
		}
	}
	if ra == "u" {
		return Rule{CFA: End}
	}
	if ra != "c-8" || sp != "u" && sp != "s" {
		return unsupported
	}
	if n, ok := offsetOf(cfa, "rsp"); ok {
		r.CFA, r.CFAOffset = SP, int32(n)
	} else if n, ok := offsetOf(cfa, "rbp"); ok {
		r.CFA, r.CFAOffset = BP, int32(n)
	} else if cfa == "exp" {
		return Rule{CFA: someExpression}
	} else {
		return unsupported
	}
	if n, ok := offsetOf(bp, "c"); ok {
		r.BP, r.BPOffset = AtCFA, int16(n)
	} else if bp == "u" {
		r.BP = sameOrLost
	} else if bp != "s" {
		r.BP = Lost
	}
	return r
}
