package layout

import (
	"strings"

	"golang.org/x/arch/x86/x86asm"
)

// programs finds a program's id and the words of its kernels' binaries, from
// ProgramImpl *.
func (d *deriver) programs() {
	if c := d.lastLoad(d.function(programID), 8); len(c) == 1 {
		d.Fields["ProgramImpl.id"] = c
	} else {
		d.miss("ProgramImpl::id", "get_id() returns no field", "circular buffers and kernels cannot be told apart by program")
	}
	if c := d.lastLoad(d.function(runtimeID), 8); len(c) == 2 {
		d.Fields["Program->runtime_id"] = c
	}
	// populate_dispatch_data gathers the words and assigns them to the member
	binary := d.first(d.function(programPop), func(s *step) bool {
		to := s.arg(0)
		return s.in.Op == x86asm.CALL && s.call == wordsAssignment &&
			to.known && to.arg == 0 && len(to.loads) == 0 && to.add > 0
	})
	if binary != nil {
		d.Fields["ProgramImpl.binary_data(begin)"] = binary.arg(0).chain()
	} else {
		d.miss("ProgramImpl::binary_data", "populate_dispatch_data assigns no words", "the size of kernels' binaries is not known")
	}
}

// wordsAssignment is std::vector<uint32_t>::operator=(const &).
const wordsAssignment = "_ZNSt6vectorIjSaIjEEaSERKS1_"

func contains(name, part string) bool { return strings.Contains(name, part) }
