package host

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// chipFolder is where Tenstorrent's kernel driver describes a chip. It has an entry for each chip
// on PCIe, in the library's order; chips behind Ethernet have none.
const chipFolder = "/sys/class/tenstorrent/tenstorrent!%d"

// A Chip is what the kernel driver knows about a chip: the type of its board, its address on
// PCIe, and an id that no other chip has. Fields are empty where there is no driver, as on a
// mock device, and where it does not have them.
type Chip struct{ Board, PCI, UniqueID string }

// ChipOf describes a chip.
func ChipOf(id int) Chip { return chipIn(chipFolder, id) }

func chipIn(folder string, id int) Chip {
	folder = fmt.Sprintf(folder, id)
	of := Chip{Board: textIn(folder, "tt_card_type"), UniqueID: textIn(folder, "tt_asic_id")}
	if device, err := os.Readlink(folder + "/device"); err == nil {
		of.PCI = filepath.Base(device)
	}
	return of
}

// BoardName returns the name of the boards that chips sit on, such as "n300"; "" if it is not
// known.
func BoardName(chips []int) string { return boardIn(chipFolder, chips) }

func boardIn(folder string, chips []int) string {
	for _, chip := range chips {
		if name := textIn(fmt.Sprintf(folder, chip), "tt_card_type"); name != "" {
			return name
		}
	}
	return ""
}

func textIn(folder, name string) string {
	text, _ := os.ReadFile(folder + "/" + name)
	return strings.TrimSpace(string(text))
}
