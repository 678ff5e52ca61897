package alloc

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
)

// TestSizesArePowersOfTwo: of an allocation on each chip, or the mean of several.
func TestSizesArePowersOfTwo(t *testing.T) {
	for _, test := range []struct {
		row  Row
		want string
	}{
		{Row{BytesPerBank: 1024, Banks: 12, Devices: []int{0, 1}}, "8 KiB to 16 KiB"},
		{Row{BytesPerBank: 16384, Banks: 1}, "16 KiB to 32 KiB"},
		{Row{BytesPerBank: 512 << 20, Banks: 1}, "512 MiB to 1 GiB"},
		{Row{BytesPerBank: 1, Banks: 1}, "1 B to 2 B"},
		{Row{Amounts: []memory.Amount{{}, {Count: 3, Bytes: 3000}}}, "512 B to 1 KiB"},
		{Row{Amounts: []memory.Amount{{Bytes: 3000}}}, "2 KiB to 4 KiB"}, // of other users: their number is not known
		{Row{}, "0 B"},
	} {
		qt.Check(t, qt.DeepEquals(GroupingOf("size").Keys(nil, &test.row), []string{test.want}))
	}
}
