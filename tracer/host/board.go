package host

import (
	"fmt"
	"os"
	"strings"
)

// BoardName returns the name of the boards that chips sit on, such as "n300", from
// Tenstorrent's kernel driver; "" where there is none, as on a mock device. The driver has
// an entry for each chip on PCIe, in the library's order; chips behind Ethernet have none.
func BoardName(chips []int) string {
	for _, chip := range chips {
		text, err := os.ReadFile(fmt.Sprintf("/sys/class/tenstorrent/tenstorrent!%d/tt_card_type", chip))
		if err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}
