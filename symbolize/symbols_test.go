package symbolize

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"
)

// EachFunction omits data among the code, and resolvers of indirect functions.
func TestEachFunctionOmitsOthers(t *testing.T) {
	f := testFile{
		symtab: []testSymbol{
			{"work", textAddr, 0x20, elf.STT_FUNC, true},
			{"table", textAddr + 0x20, 0x10, elf.STT_OBJECT, true},
			{"memcpy", textAddr + 0x30, 0x10, elf.STT_GNU_IFUNC, true},
			{"work.cold", textAddr + 0x40, 0x10, elf.STT_FUNC, true},
			{"declared", 0, 0, elf.STT_FUNC, false},
			{"", textAddr + 0x50, 0x10, elf.STT_FUNC, true},
		},
		dynsym: []testSymbol{{"exported", textAddr + 0x60, 8, elf.STT_FUNC, true}},
	}
	var found []Symbol
	mustNew(t, f.image()).EachFunction(func(s Symbol) { found = append(found, s) })
	qt.Check(t, qt.DeepEquals(found, []Symbol{{"work", textAddr, 0x20}, {"exported", textAddr + 0x60, 8}}))
}
