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
	qt.Assert(t, qt.IsNil(os.WriteFile(one+"/tt_fw_bundle_ver", []byte("19.4.0.0\n"), 0o644)))
	qt.Assert(t, qt.IsNil(os.Symlink("../../../0000:c1:00.0", one+"/device")))
	qt.Check(t, qt.Equals(chipIn(folder, 1), Chip{1, "p150a", "0000:c1:00.0", "0x5AFE", "19.4.0.0"}))
	qt.Check(t, qt.DeepEquals(chipsIn(folder), []Chip{chipIn(folder, 1)}))
	qt.Check(t, qt.Equals(chipIn(folder, 0), Chip{})) // behind Ethernet
	var boards Boards
	qt.Check(t, qt.Equals(boards.Name([]int{1}), ""))
	boards.read(folder)
	qt.Check(t, qt.Equals(boards.Name([]int{0, 1}), "p150a"))
	qt.Check(t, qt.Equals(boards.Name([]int{0}), ""))
}

func TestWhatAProcessRunsOn(t *testing.T) {
	for _, c := range []struct {
		environment, file string
		want              Runs
	}{
		{"HOME=/root\x00", "/dev/null", OnNothingKnown},
		{"TT_METAL_SIMULATOR=\x00TT_METAL_MOCK_CLUSTER_DESC_PATH=/n150.yaml\x00", "/dev/null", OnMock},
		{"TT_METAL_MOCK_CLUSTER_DESC_PATH=/n150.yaml\x00TT_METAL_SIMULATOR=/sim\x00", "/dev/null", OnSimulator},
		{"HOME=/root\x00", "/dev/tenstorrent/3", OnCard},
	} {
		folder := t.TempDir()
		qt.Assert(t, qt.IsNil(os.WriteFile(folder+"/environ", []byte(c.environment), 0o600)))
		qt.Assert(t, qt.IsNil(os.Mkdir(folder+"/fd", 0o700)))
		qt.Assert(t, qt.IsNil(os.Symlink(c.file, folder+"/fd/7")))
		on, err := runsOn(folder)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(on, c.want))
	}
}
