package service

import (
	"net"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

func socketPath(t testing.TB) string { return filepath.Join(t.TempDir(), "s.sock") }

func entries(t *testing.T, path string) (names []string) {
	t.Helper()
	list, err := os.ReadDir(filepath.Dir(path))
	qt.Assert(t, qt.IsNil(err))
	for _, e := range list {
		names = append(names, e.Name())
	}
	return names
}

func TestSocketIsForEverybodyAndLeavesNothing(t *testing.T) {
	path := socketPath(t)
	s, err := Listen(path)
	qt.Assert(t, qt.IsNil(err))
	info, err := os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode(), os.ModeSocket|0o666))
	lock, err := os.Stat(path + ".lock")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(lock.Mode(), 0o600)) // whom it opens for could lock it
	qt.Check(t, qt.IsNil(s.Close()))
	qt.Check(t, qt.HasLen(entries(t, path), 0))
}

func TestSecondServiceIsRefused(t *testing.T) {
	path := socketPath(t)
	s, err := Listen(path)
	qt.Assert(t, qt.IsNil(err))
	defer s.Close()
	for range 2 {
		_, err = Listen(path)
		qt.Check(t, qt.ErrorMatches(err, `another ttmem serves on .*/s.sock \(PID \d+\): end it, or .*`))
	}
	_, err = os.Stat(path)
	qt.Check(t, qt.IsNil(err))
	// also where somebody has removed the socket
	qt.Assert(t, qt.IsNil(os.Remove(path)))
	_, err = Listen(path)
	qt.Check(t, qt.ErrorMatches(err, `another ttmem serves on .*`))
}

func TestSocketThatSomebodyElseAnswersIsKept(t *testing.T) {
	path := socketPath(t)
	other, err := net.Listen("unix", path)
	qt.Assert(t, qt.IsNil(err))
	defer other.Close()
	_, err = Listen(path)
	qt.Check(t, qt.ErrorMatches(err, `another ttmem serves on .*`))
	qt.Check(t, qt.DeepEquals(entries(t, path), []string{"s.sock"}))
}

func TestSocketOfAKilledServiceIsReplaced(t *testing.T) {
	path := socketPath(t)
	killed, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	qt.Assert(t, qt.IsNil(err))
	killed.SetUnlinkOnClose(false)
	killed.Close()
	qt.Assert(t, qt.IsNil(os.WriteFile(path+".lock", nil, 0o600)))
	s, err := Listen(path)
	qt.Assert(t, qt.IsNil(err))
	c, err := net.Dial("unix", path)
	qt.Assert(t, qt.IsNil(err))
	c.Close()
	qt.Check(t, qt.IsNil(s.Close()))
	qt.Check(t, qt.HasLen(entries(t, path), 0))
}

func TestAFileThatIsNoSocketIsKept(t *testing.T) {
	for name, put := range map[string]func(path string) error{
		"file":    func(path string) error { return os.WriteFile(path, []byte("precious"), 0o644) },
		"folder":  func(path string) error { return os.Mkdir(path, 0o755) },
		"symlink": func(path string) error { return os.Symlink("/nowhere", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := socketPath(t)
			qt.Assert(t, qt.IsNil(put(path)))
			_, err := Listen(path)
			qt.Check(t, qt.ErrorMatches(err, `--socket .*: (the file is not a socket|is a directory): .*`))
			qt.Check(t, qt.DeepEquals(entries(t, path), []string{"s.sock"}))
		})
	}
}

func TestSocketThatIsNotOursAnyMoreIsKept(t *testing.T) {
	path := socketPath(t)
	s, err := Listen(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.Rename(path, path+".away")))
	other, err := net.Listen("unix", path)
	qt.Assert(t, qt.IsNil(err))
	defer other.Close()
	qt.Check(t, qt.IsNil(s.Close()))
	_, err = os.Stat(path)
	qt.Check(t, qt.IsNil(err))
}

// Another user exchanges the folder of the socket with a link to a folder of root's, again and again.
func TestASocketStaysOutOfFoldersOfOthers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	t.Setenv("SUDO_UID", "")
	top := t.TempDir()
	guarded, folder, link := filepath.Join(top, "guarded"), filepath.Join(top, "folder"), filepath.Join(top, "link")
	qt.Assert(t, qt.IsNil(os.Mkdir(guarded, 0o700)))
	qt.Assert(t, qt.IsNil(os.Mkdir(folder, 0o777)))
	qt.Assert(t, qt.IsNil(os.Symlink(guarded, link)))
	for _, path := range []string{folder, link} {
		qt.Assert(t, qt.IsNil(os.Lchown(path, 54321, 54321)))
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Renameat2(unix.AT_FDCWD, folder, unix.AT_FDCWD, link, unix.RENAME_EXCHANGE)
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	made := 0
	for range 300 {
		s, err := Listen(filepath.Join(folder, "s.sock"))
		list, _ := os.ReadDir(guarded)
		qt.Assert(t, qt.HasLen(list, 0))
		if err == nil {
			made++
			qt.Check(t, qt.IsNil(s.Close()))
			continue
		}
		qt.Check(t, qt.ErrorMatches(err, "--socket .*: (the symbolic link .* belongs to user 54321|not a directory); .*"))
	}
	close(stop)
	<-stopped
	qt.Check(t, qt.IsTrue(made > 0))
	for _, path := range []string{folder, link, guarded} {
		left, _ := os.ReadDir(path)
		qt.Check(t, qt.HasLen(left, 0), qt.Commentf(path))
	}
}

func TestPathsThatAreNoGoodAreNamed(t *testing.T) {
	long := filepath.Join(t.TempDir(), string(make([]byte, 0, 200))+"123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890")
	for path, want := range map[string]string{
		long:                  `--socket .*: the path is too long for a socket: 107 bytes at most`,
		"/nowhere/there.sock": `--socket /nowhere/there.sock: no such file or directory; give a path in a folder that can be written to`,
	} {
		_, err := Listen(path)
		qt.Check(t, qt.ErrorMatches(err, want))
		_, err = os.Stat(path + ".lock")
		qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
	}
}

func TestNotifySendsToSystemd(t *testing.T) {
	for _, path := range []string{filepath.Join(t.TempDir(), "notify"), "@ttmem-test-notify"} {
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
		qt.Assert(t, qt.IsNil(err))
		defer l.Close()
		t.Setenv("NOTIFY_SOCKET", path)
		qt.Assert(t, qt.IsNil(Notify("READY=1")))
		b := make([]byte, 100)
		n, err := l.Read(b)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(string(b[:n]), "READY=1"))
	}
	t.Setenv("NOTIFY_SOCKET", "")
	qt.Check(t, qt.IsNil(Notify("READY=1")))
}

func TestSystemdPassesOneSocket(t *testing.T) {
	t.Setenv("LISTEN_FDS", "2")
	t.Setenv("LISTEN_PID", "1") // for another process
	s, err := Inherited()
	qt.Check(t, qt.IsNil(s))
	qt.Check(t, qt.IsNil(err))
	t.Setenv("LISTEN_PID", strconv.Itoa(os.Getpid()))
	_, err = Inherited()
	qt.Check(t, qt.ErrorMatches(err, "systemd passed 2 sockets: give its unit one ListenStream="))
}
