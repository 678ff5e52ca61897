package service

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	tracing "ttmem/tracer/host"
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

// maxLinks is how many open files are looked at for the holder's socket: a user can have millions.
const maxLinks = 1 << 16

// String names the process, if it is found, and the user.
func (h *holder) String() string {
	pid := "a process"
	if n := h.process(); n > 0 {
		pid = fmt.Sprintf("PID %d", n)
	}
	return fmt.Sprintf("%s of user %s", pid, h.uid)
}

// process returns the process that has the socket open; 0 if it is not found.
func (h *holder) process() int {
	pids, _ := tracing.PIDs()
	left := maxLinks
	for _, pid := range pids {
		if strconv.Itoa(tracing.RealUser(pid)) != h.uid {
			continue
		}
		dir, err := os.Open(fmt.Sprintf("/proc/%d/fd", pid))
		if err != nil {
			continue
		}
		names, _ := dir.Readdirnames(left)
		dir.Close()
		for _, name := range names {
			if to, err := os.Readlink(dir.Name() + "/" + name); err == nil && to == "socket:["+h.inode+"]" {
				return pid
			}
		}
		if left -= len(names); left <= 0 {
			break
		}
	}
	return 0
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
