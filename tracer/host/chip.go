package host

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
)

// chipFolder is where Tenstorrent's kernel driver describes a chip. It has an entry for each chip
// on PCIe, in the library's order; chips behind Ethernet have none.
const chipFolder = "/sys/class/tenstorrent/tenstorrent!%d"

// A Chip is a chip on PCIe, an element of `ttmem doctor --json`.
//
// Fields are empty where there is no kernel driver, as on a mock device, and where it does not have them.
type Chip struct {
	ID       int    `json:"id"`
	Board    string `json:"board"`
	PCI      string `json:"pci_bdf"`
	UniqueID string `json:"unique_id"`
	Firmware string `json:"firmware"`
}

// ChipOf describes a chip.
func ChipOf(id int) Chip { return chipIn(chipFolder, id) }

func chipIn(folder string, id int) Chip {
	folder = fmt.Sprintf(folder, id)
	of := Chip{
		ID: id, Board: textIn(folder, "tt_card_type"), UniqueID: textIn(folder, "tt_asic_id"), Firmware: textIn(folder, "tt_fw_bundle_ver"),
	}
	if device, err := os.Readlink(folder + "/device"); err == nil {
		of.PCI = filepath.Base(device)
	}
	return of
}

// Chips returns the chips on PCIe, in the order of their ids.
func Chips() []Chip { return chipsIn(chipFolder) }

func chipsIn(folder string) []Chip {
	list := []Chip{}
	parent, name := filepath.Split(folder)
	entries, _ := os.ReadDir(parent) // none without the driver
	for _, e := range entries {
		var id int
		if _, err := fmt.Sscanf(e.Name(), name, &id); err == nil {
			list = append(list, chipIn(folder, id))
		}
	}
	slices.SortFunc(list, func(a, b Chip) int { return a.ID - b.ID })
	return list
}

// DriverVersion returns the release of Tenstorrent's kernel driver; "" if it is not loaded.
func DriverVersion() string { return textIn("/sys/module/tenstorrent", "version") }

// A Runs is what a process runs its programs on.
type Runs string

// What a process runs its programs on. A card has a device file; the others are named by the
// environment that the process began with.
const (
	OnNothingKnown Runs = ""
	OnCard         Runs = "card"
	OnMock         Runs = "mock device"
	OnSimulator    Runs = "simulator"
)

const (
	maxDescriptors = 1 << 12
	maxEnvironment = 1 << 18
)

// RunsOn returns what a process runs its programs on.
func (p *Proc) RunsOn(pid int) Runs {
	on, err := answered(p, pid, func() (Runs, error) { return runsOn(ProcDir(pid)) })
	if err != nil {
		return OnNothingKnown
	}
	return on
}

func runsOn(folder string) (Runs, error) {
	if hasDeviceFile(folder + "/fd") {
		return OnCard, nil
	}
	f, err := os.Open(folder + "/environ")
	if err != nil {
		return OnNothingKnown, err
	}
	defer f.Close()
	environment, err := io.ReadAll(io.LimitReader(f, maxEnvironment))
	if err != nil {
		return OnNothingKnown, err
	}
	on := OnNothingKnown
	for variable := range bytes.SplitSeq(environment, []byte{0}) {
		switch name, value, _ := bytes.Cut(variable, []byte("=")); {
		case len(value) == 0:
		case string(name) == "TT_METAL_SIMULATOR":
			return OnSimulator, nil
		case string(name) == "TT_METAL_MOCK_CLUSTER_DESC_PATH":
			on = OnMock
		}
	}
	return on, nil
}

// hasDeviceFile reports whether one of the open files is a chip's.
func hasDeviceFile(folder string) bool {
	f, err := os.Open(folder)
	if err != nil {
		return false
	}
	defer f.Close()
	names, _ := f.Readdirnames(maxDescriptors)
	return slices.ContainsFunc(names, func(name string) bool {
		target, err := os.Readlink(folder + "/" + name)
		return err == nil && strings.HasPrefix(target, "/dev/tenstorrent/")
	})
}

// Boards has the names of the boards that chips sit on. It is safe for concurrent use; the zero value has
// none.
type Boards struct{ chips atomic.Pointer[[]Chip] }

// Read reads them from the kernel driver, which may take a while.
func (b *Boards) Read() { b.read(chipFolder) }

func (b *Boards) read(folder string) {
	chips := chipsIn(folder)
	b.chips.Store(&chips)
}

// Name returns the name of the boards of some chips, such as "n300", as last read; "" if it is not known.
func (b *Boards) Name(ids []int) string {
	chips := b.chips.Load()
	if chips == nil {
		return ""
	}
	for _, c := range *chips {
		if c.Board != "" && slices.Contains(ids, c.ID) {
			return c.Board
		}
	}
	return ""
}

func textIn(folder, name string) string {
	text, _ := os.ReadFile(folder + "/" + name)
	return strings.TrimSpace(string(text))
}
