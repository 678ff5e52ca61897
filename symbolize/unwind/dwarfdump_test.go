package unwind

import (
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// Patterns in the output of llvm-dwarfdump.
var (
	dwarfFDE = regexp.MustCompile(`^[0-9a-f]+ .* FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.\.([0-9a-f]+)`)
	dwarfCIE = regexp.MustCompile(`^([0-9a-f]+) .* CIE`)
	dwarfRow = regexp.MustCompile(`^  0x([0-9a-f]+): CFA=(.*?)(?:: (.*))?$`)
	dwarfReg = regexp.MustCompile(`(\w+)=(\[[^]]*\]|[^,\[]+)`)
)

// dwarfdump returns LLVM's rows, including expressions. It omits functions with
// DW_CFA_restore_state: LLVM 14 restores the registers, not the CFA.
func dwarfdump(t *testing.T, path string) (functions []function) {
	signal := map[string]bool{}
	var cie string
	inFunction, restores := false, false
	runTool(t, func(line string) {
		if m := dwarfRow.FindStringSubmatch(line); m != nil {
			if !inFunction || restores {
				return
			}
			rule := dwarfRule(m[2], m[3])
			if signal[cie] {
				rule = Rule{CFA: Signal}
			}
			f := &functions[len(functions)-1]
			f.rows = append(f.rows, at{hex(t, m[1]), rule})
		} else if m := dwarfFDE.FindStringSubmatch(line); m != nil {
			cie, inFunction, restores = m[1], true, false
			functions = append(functions, function{span: span{hex(t, m[2]), hex(t, m[3])}})
		} else if m := dwarfCIE.FindStringSubmatch(line); m != nil {
			cie, inFunction = m[1], false
		} else if rest, ok := strings.CutPrefix(line, "  Augmentation: "); ok {
			signal[cie] = strings.Contains(rest, "S")
		} else if strings.HasPrefix(line, "  DW_CFA_restore_state") && inFunction {
			functions[len(functions)-1].rows = nil
			restores = true
		}
	}, "llvm-dwarfdump", "--eh-frame", path)
	return functions
}

// LLVM's form of the expressions that have rules.
var (
	dwarfDeref = regexp.MustCompile(`^DW_OP_breg\d R(SP|BP)([+-]\d+), DW_OP_deref(?:, DW_OP_plus_uconst 0x([0-9a-f]+))?$`)
	dwarfPLT   = regexp.MustCompile(`^DW_OP_breg7 RSP\+8, DW_OP_breg16 RIP\+0, DW_OP_lit15, DW_OP_and, DW_OP_lit(\d+), DW_OP_ge, DW_OP_lit3, DW_OP_shl, DW_OP_plus$`)
	dwarfBP    = regexp.MustCompile(`^\[DW_OP_breg6 RBP([+-]\d+)\]$`)
)

func dwarfRule(cfa, registers string) Rule {
	saved := map[string]string{}
	for _, m := range dwarfReg.FindAllStringSubmatch(registers, -1) {
		saved[m[1]] = m[2]
	}
	if saved["RIP"] == "undefined" {
		return Rule{CFA: End}
	}
	if saved["RIP"] != "[CFA-8]" || saved["RSP"] != "" && saved["RSP"] != "same" {
		return unsupported
	}
	r := Rule{}
	if n, ok := offsetOf(cfa, "RSP"); ok {
		r.CFA, r.CFAOffset = SP, int32(n)
	} else if n, ok := offsetOf(cfa, "RBP"); ok {
		r.CFA, r.CFAOffset = BP, int32(n)
	} else if m := dwarfDeref.FindStringSubmatch(cfa); m != nil {
		low, _ := strconv.ParseInt(m[2], 10, 16)
		high, _ := strconv.ParseInt("0"+m[3], 16, 16)
		r.CFA = map[string]CFA{"SP": DerefSP, "BP": DerefBP}[m[1]]
		r.CFAOffset = int32(high<<16 | low&0xffff)
	} else if m := dwarfPLT.FindStringSubmatch(cfa); m != nil {
		n, _ := strconv.Atoi(m[1])
		r.CFA, r.CFAOffset = PLT, int32(n)
	} else {
		return unsupported
	}
	bp := saved["RBP"]
	if n, ok := offsetOf(strings.Trim(bp, "[]"), "CFA"); ok && strings.HasPrefix(bp, "[") {
		r.BP, r.BPOffset = AtCFA, int16(n)
	} else if m := dwarfBP.FindStringSubmatch(bp); m != nil {
		n, _ := strconv.Atoi(m[1])
		r.BP, r.BPOffset = AtBP, int16(n)
	} else if bp != "" && bp != "same" {
		r.BP = Lost
	}
	return r
}
