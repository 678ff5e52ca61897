package service

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ttmem/tracer/place"
)

// A Socket is the unix socket of the service. Every user may connect; what a user sees depends on
// the user.
type Socket struct {
	*net.UnixListener
	path string
	file fs.FileInfo // the socket in the file system
	lock *os.File
}

// notMade returns the error for a socket that could not be made.
func notMade(path string, err error) error {
	return fmt.Errorf("--socket %s: %w; give a path in a folder that can be written to", path, errnoOf(err))
}

// Listen makes the socket, and replaces one of a killed service. While it is open, no other
// service can open this path.
func Listen(path string) (_ *Socket, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	at, err := place.Find(path)
	if err != nil {
		return nil, notMade(path, err)
	}
	lock, err := lockFile(path + ".lock")
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, another(path)
	}
	if err != nil {
		return nil, notMade(path, err)
	}
	s := &Socket{path: path, lock: lock}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if err := clear(path); err != nil {
		return nil, err
	}
	s.UnixListener, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case errors.Is(err, unix.EINVAL):
		return nil, fmt.Errorf("--socket %s: the path is too long for a socket: 107 bytes at most", path)
	case err != nil:
		return nil, notMade(path, err)
	}
	s.SetUnlinkOnClose(false) // it may belong to another service by then
	if s.file, err = openToAll(at); err != nil {
		return nil, fmt.Errorf("--socket: %w", err)
	}
	return s, nil
}

// Inherited returns the socket that systemd opened for this process, as sd_listen_fds(3)
// describes; nil if there is none. systemd owns it and opens it to all.
func Inherited() (*Socket, error) {
	const first = 3 // the first descriptor that systemd passes
	if os.Getenv("LISTEN_PID") != strconv.Itoa(os.Getpid()) {
		return nil, nil
	}
	if n := os.Getenv("LISTEN_FDS"); n != "1" {
		return nil, fmt.Errorf("systemd passed %s sockets: give its unit one ListenStream=", n)
	}
	f := os.NewFile(first, "systemd's socket")
	defer f.Close()
	l, err := net.FileListener(f)
	if err != nil {
		return nil, fmt.Errorf("taking systemd's socket: %w", errnoOf(err))
	}
	u, ok := l.(*net.UnixListener)
	if !ok {
		l.Close()
		return nil, errors.New("systemd's socket is not a unix socket: give its unit ListenStream=" + DefaultSocket)
	}
	return &Socket{UnixListener: u, path: u.Addr().String()}, nil
}

// openToAll lets every user connect to the socket, unless another file has replaced it.
func openToAll(at *place.Place) (fs.FileInfo, error) {
	f, err := at.Open(unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && info.Mode().Type() != fs.ModeSocket {
		err = errors.New("the socket was replaced")
	}
	if err == nil {
		err = os.Chmod(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), 0o666)
	}
	return info, err
}

// Path is the path of the socket.
func (s *Socket) Path() string { return s.path }

// Made reports whether this process made the socket, and not systemd.
func (s *Socket) Made() bool { return s.lock != nil }

// Close closes the socket and removes it, unless it was replaced.
func (s *Socket) Close() error {
	var err error
	if s.UnixListener != nil {
		if err = s.UnixListener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
		if now, statErr := os.Lstat(s.path); statErr == nil && s.file != nil && os.SameFile(now, s.file) {
			err = errors.Join(err, os.Remove(s.path))
		}
		s.UnixListener = nil
	}
	if s.lock != nil {
		// removed while locked: a process that waits for the lock then finds no file
		err = errors.Join(err, os.Remove(s.lock.Name()), s.lock.Close())
		s.lock = nil
	}
	return err
}

// another returns the error for a taken path, with the process if that is known.
func another(path string) error {
	pid := ""
	if c, err := net.Dial("unix", path); err == nil {
		defer c.Close()
		if cred, err := peer(c); err == nil {
			pid = fmt.Sprintf(" (PID %d)", cred.Pid)
		}
	}
	return fmt.Errorf("another ttmem serves on %s%s: end it, or give this one another --socket", path, pid)
}

// clear removes a socket on which no process listens, and nothing else.
func clear(path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("--socket: %w", err)
	}
	if info.IsDir() {
		return fmt.Errorf("--socket %s: is a directory: give the path of a socket in it", path)
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("--socket %s: the file is not a socket: remove it, or give another path", path)
	}
	c, err := net.Dial("unix", path)
	switch {
	case err == nil:
		c.Close()
		return another(path)
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("--socket %s: checking whether a service answers there: %w", path, errnoOf(err))
	}
	if err := os.Remove(path); err != nil {
		return fmt.Errorf("--socket %s: removing the socket of a ttmem that was killed: %w", path, errnoOf(err))
	}
	return nil
}

// lockFile makes and locks a file that only its owner can open: otherwise any user could lock it.
// The error is EWOULDBLOCK if it is already locked.
func lockFile(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
		held, err := f.Stat()
		if err == nil && (!held.Mode().IsRegular() || held.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid())) {
			err = fmt.Errorf("%s is not a file of this user: remove it", path)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := os.Lstat(path); err == nil && os.SameFile(held, now) {
			return f, nil
		}
		f.Close() // the process that had locked the file removed it
	}
}

func lock(f *os.File) error {
	for {
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EINTR {
			return err
		}
	}
}

// peer returns the process that connected at the other end.
func peer(c net.Conn) (*unix.Ucred, error) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	return cred, errors.Join(err, credErr)
}

// errnoOf returns the kernel's part of an error: the message already has the path.
func errnoOf(err error) error {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
