package service

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A client is who shares what a service can do at once: a user of this host, or another host.
type client struct {
	uid  int        // unknownUser for other hosts
	host netip.Addr // invalid for a user of this host
}

// unknownUser is the user of clients that the kernel does not identify.
const unknownUser = -1

// clientOf returns the client of a request; without one, the user stands for it.
func clientOf(ctx context.Context, v Viewer) client {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		return c.client
	}
	return client{uid: v.UID}
}

// clientAt returns the client at the other end of a TCP connection. On loopback it is the user of
// the socket there, so that one user does not use up what all have. An IPv6 host has a network of 64
// bits of addresses.
func clientAt(c net.Conn) client {
	local, ok := c.LocalAddr().(*net.TCPAddr)
	remote, okRemote := c.RemoteAddr().(*net.TCPAddr)
	if !ok || !okRemote {
		return client{uid: unknownUser}
	}
	here, there := unmapped(local), unmapped(remote)
	if uid, ok := userOf(there, here); ok {
		return client{uid: firstOfRange(uid)}
	}
	if there.Addr().IsLoopback() {
		return client{uid: unknownUser}
	}
	host := there.Addr().WithZone("")
	if host.Is6() {
		network, _ := host.Prefix(64)
		host = network.Addr()
	}
	return client{uid: unknownUser, host: host}
}

// subordinate has the ranges of ids that users have beside their own.
var subordinate = "/etc/subuid"

// firstOfRange returns the first id of the range of subordinate ids in which an id is, or the id itself: a
// user has thousands of them, and shares one part. Which process has a TCP socket, whose user namespace
// would tell, the kernel does not say.
func firstOfRange(uid int) int {
	text, _ := os.ReadFile(subordinate)
	for line := range strings.Lines(string(text)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); len(f) == 3 { // subuid(5): user, first id, count
			first, err := strconv.Atoi(f[1])
			count, errCount := strconv.Atoi(f[2])
			if err == nil && errCount == nil && first <= uid && uid-first < count {
				return first
			}
		}
	}
	return uid
}

func unmapped(a *net.TCPAddr) netip.AddrPort {
	at := a.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// Messages of sock_diag(7), which x/sys does not have.
const (
	diagByFamily  = 20 // SOCK_DIAG_BY_FAMILY
	diagHeader    = 16 // struct nlmsghdr
	diagRequest   = diagHeader + 56
	diagUser      = diagHeader + 64 // idiag_uid in struct inet_diag_msg
	diagSelectors = diagHeader + 8  // struct inet_diag_sockid
)

// userOf returns the user of the TCP socket of this host with these addresses; false if there is none,
// or the kernel does not say.
func userOf(local, remote netip.AddrPort) (uid int, ok bool) {
	if local.Addr().Is4() != remote.Addr().Is4() {
		return 0, false
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.NETLINK_INET_DIAG)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	r := make([]byte, diagRequest)
	binary.NativeEndian.PutUint32(r, diagRequest)
	binary.NativeEndian.PutUint16(r[4:], diagByFamily)
	binary.NativeEndian.PutUint16(r[6:], unix.NLM_F_REQUEST)
	r[diagHeader], r[diagHeader+1] = unix.AF_INET, unix.IPPROTO_TCP
	if local.Addr().Is6() {
		r[diagHeader] = unix.AF_INET6
	}
	binary.NativeEndian.PutUint32(r[diagHeader+4:], ^uint32(0)) // in any state
	id := r[diagSelectors:]
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	binary.NativeEndian.PutUint64(id[40:], ^uint64(0)) // no cookie
	if err := unix.Sendto(fd, r, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, false
	}
	answer := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, answer, unix.MSG_DONTWAIT) // the kernel has answered by then
	if err != nil || n < diagUser+4 || binary.NativeEndian.Uint16(answer[4:]) != diagByFamily {
		return 0, false
	}
	return int(binary.NativeEndian.Uint32(answer[diagUser:])), true
}
