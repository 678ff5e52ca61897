package host

import (
	"os"
	"testing"

	"github.com/go-quicktest/qt"
)

// The files are those of Tenstorrent's kernel driver, as its docs/sysfs-attributes.md lists them.
func TestChipIsWhatTheDriverKnows(t *testing.T) {
	dir := t.TempDir()
	folder := dir + "/tenstorrent!%d"
	one := dir + "/tenstorrent!1"
	qt.Assert(t, qt.IsNil(os.Mkdir(one, 0o755)))
	qt.Assert(t, qt.IsNil(os.WriteFile(one+"/tt_card_type", []byte("p150a\n"), 0o644)))
	qt.Assert(t, qt.IsNil(os.WriteFile(one+"/tt_asic_id", []byte("0x5AFE\n"), 0o644)))
	qt.Assert(t, qt.IsNil(os.Symlink("../../../0000:c1:00.0", one+"/device")))
	qt.Check(t, qt.Equals(chipIn(folder, 1), Chip{"p150a", "0000:c1:00.0", "0x5AFE"}))
	qt.Check(t, qt.Equals(chipIn(folder, 0), Chip{})) // behind Ethernet
	qt.Check(t, qt.Equals(boardIn(folder, []int{0, 1}), "p150a"))
}
