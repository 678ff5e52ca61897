package service

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A holder is the socket that listens at an address, and its user.
type holder struct {
	inode string
	uid   string
}

// is reports whether two holders are the same socket.
func (h *holder) is(other *holder) bool {
	return h == nil && other == nil || h != nil && other != nil && *h == *other
}

// String names the process and the user.
func (h *holder) String() string {
	pid := "a process"
	links, _ := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+h.inode+"]" {
			pid = "PID " + strings.Split(link, "/")[2]
			break
		}
	}
	return fmt.Sprintf("%s of user %s", pid, h.uid)
}

// holderOf returns the socket that keeps this process from listening at an address; nil if it is not
// known.
func holderOf(at *net.TCPAddr) *holder {
	want := at.AddrPort()
	for _, table := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(table)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			const listens = "0A"
			f := strings.Fields(line) // sl local_address rem_address st … uid timeout inode
			if len(f) < 10 || f[3] != listens {
				continue
			}
			has, ok := addressIn(f[1])
			all := has.Addr().IsUnspecified() || !want.Addr().IsValid() || want.Addr().IsUnspecified()
			if ok && has.Port() == want.Port() && (all || has.Addr() == want.Addr().Unmap()) {
				return &holder{inode: f[9], uid: f[7]}
			}
		}
	}
	return nil
}

// addressIn parses an address of /proc/net/tcp: words of 32 bits in the order of the machine.
func addressIn(text string) (netip.AddrPort, bool) {
	address, number, _ := strings.Cut(text, ":")
	b, err := hex.DecodeString(address)
	port, errPort := strconv.ParseUint(number, 16, 16)
	if err != nil || errPort != nil || len(b)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(b); i += 4 {
		b[i], b[i+1], b[i+2], b[i+3] = b[i+3], b[i+2], b[i+1], b[i]
	}
	addr, ok := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), ok
}
