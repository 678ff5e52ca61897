package service

import (
	"context"
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
	at   *place.Place // nil if systemd made it
	file fs.FileInfo  // the socket in the file system
	lock *os.File
}

// maxSocketPath is the length of the longest path to which a client can connect.
const maxSocketPath = 107

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
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("--socket %s: the path is too long for a socket: %d bytes at most", path, maxSocketPath)
	}
	s := &Socket{path: path}
	if s.at, err = place.FindName(path); err != nil {
		return nil, notMade(path, err)
	}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if _, err := s.before(); err != nil { // without a lock file beside what is somebody else's
		return nil, err
	}
	s.lock, err = lockFile(s.lockPlace())
	if errors.Is(err, unix.EWOULDBLOCK) {
		return nil, s.another()
	}
	if err != nil {
		return nil, notMade(path, err)
	}
	if err := s.clear(); err != nil {
		return nil, err
	}
	if err := s.listen(); err != nil {
		return nil, notMade(path, err)
	}
	return s, nil
}

func (s *Socket) lockPlace() *place.Place { return s.at.Beside(s.at.Name() + ".lock") }

// listen makes the socket with permissions for all: it gets those of the descriptor, so that
// nothing has to be changed by name.
func (s *Socket) listen() error {
	c := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) (err error) {
		return errors.Join(raw.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o666) }), err)
	}}
	umask := unix.Umask(0)
	l, err := c.Listen(context.Background(), "unix", s.at.Path())
	unix.Umask(umask)
	if err != nil {
		return err
	}
	s.UnixListener = l.(*net.UnixListener)
	s.SetUnlinkOnClose(false) // it may belong to another service by then
	s.file, err = s.at.Stat()
	return err
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

// Path is the path of the socket.
func (s *Socket) Path() string { return s.path }

// Made reports whether this process made the socket, and not systemd.
func (s *Socket) Made() bool { return s.at != nil }

// Close closes the socket and removes it, unless it was replaced.
func (s *Socket) Close() error {
	var err error
	if s.UnixListener != nil {
		if err = s.UnixListener.Close(); errors.Is(err, net.ErrClosed) {
			err = nil
		}
		if s.file != nil {
			if now, statErr := s.at.Stat(); statErr == nil && os.SameFile(now, s.file) {
				err = errors.Join(err, s.at.Remove())
			}
		}
		s.UnixListener = nil
	}
	if s.lock != nil {
		// removed while locked: a process that waits for the lock then finds no file
		err = errors.Join(err, s.lockPlace().Remove(), s.lock.Close())
		s.lock = nil
	}
	if s.at != nil {
		s.at.Close()
	}
	return err
}

// another returns the error for a taken path, with the process if that is known.
func (s *Socket) another() error {
	pid := ""
	if c, err := net.Dial("unix", s.at.Path()); err == nil {
		defer c.Close()
		if cred, err := peer(c); err == nil {
			pid = fmt.Sprintf(" (PID %d)", cred.Pid)
		}
	}
	return fmt.Errorf("another ttmem serves on %s%s: end it, or give this one another --socket", s.path, pid)
}

// before reports whether a socket is there, and returns an error if anything else is.
func (s *Socket) before() (bool, error) {
	info, err := s.at.Stat()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("--socket: %w", err)
	case info.IsDir():
		return false, fmt.Errorf("--socket %s: is a directory: give the path of a socket in it", s.path)
	case info.Mode().Type() != fs.ModeSocket:
		return false, fmt.Errorf("--socket %s: the file is not a socket: remove it, or give another path", s.path)
	}
	return true, nil
}

// clear removes a socket on which no process listens, and nothing else.
func (s *Socket) clear() error {
	if there, err := s.before(); !there {
		return err
	}
	c, err := net.Dial("unix", s.at.Path())
	switch {
	case err == nil:
		c.Close()
		return s.another()
	case !errors.Is(err, unix.ECONNREFUSED):
		return fmt.Errorf("--socket %s: checking whether a service answers there: %w", s.path, errnoOf(err))
	}
	if err := s.at.Remove(); err != nil {
		return fmt.Errorf("--socket %s: removing the socket of a ttmem that was killed: %w", s.path, errnoOf(err))
	}
	return nil
}

// lockFile makes and locks a file that only its owner can open: otherwise any user could lock it.
// The error is EWOULDBLOCK if it is already locked.
func lockFile(at *place.Place) (*os.File, error) {
	for {
		f, err := at.Open(os.O_RDWR|os.O_CREATE|unix.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		if err := lock(f); err != nil {
			f.Close()
			return nil, err
		}
		held, err := f.Stat()
		if err == nil && (!held.Mode().IsRegular() || held.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid())) {
			err = fmt.Errorf("%s is not a file of this user: remove it", at)
		}
		if err != nil {
			f.Close()
			return nil, err
		}
		if now, err := at.Stat(); err == nil && os.SameFile(held, now) {
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
