package host

import (
	"fmt"
	"os"
	"strings"
)

// BoardName is the name of the boards that chips sit on, such as "n300", where
// Tenstorrent's kernel driver tells it; "" elsewhere, as on a mock device. The
// driver numbers boards as the library numbers the chips that are reached over
// PCIe; the others, behind Ethernet, have no entry of their own.
func BoardName(chips []int) string {
	for _, chip := range chips {
		text, err := os.ReadFile(fmt.Sprintf("/sys/class/tenstorrent/tenstorrent!%d/tt_card_type", chip))
		if err == nil {
			return strings.TrimSpace(string(text))
		}
	}
	return ""
}
