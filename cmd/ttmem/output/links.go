package output

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// maxLinks is how many symbolic links the kernel follows on the way to a file.
const maxLinks = 40

// checkLinks is an error if a symbolic link on the way to a file belongs to another user, who
// could have root overwrite any file. The user behind sudo may have links.
func checkLinks(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	path, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		next := filepath.Join(at, rest[0])
		rest = rest[1:]
		info, err := os.Lstat(next)
		if err != nil {
			return nil // opening it shows why, or creates it
		}
		if info.Mode().Type() != fs.ModeSymlink {
			at = next
			continue
		}
		if uid, ok := ownerOf(info); ok && !mayLink(uid) {
			return fmt.Errorf("the symbolic link %s belongs to user %d", next, uid)
		}
		to, err := os.Readlink(next)
		if err != nil {
			return err
		}
		if filepath.IsAbs(to) {
			at = "/"
		}
		rest = append(strings.Split(to, "/"), rest...)
		links++
	}
	return nil
}

func ownerOf(info fs.FileInfo) (uid int, ok bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return int(stat.Uid), true
}

// mayLink reports whether root follows links of a user.
func mayLink(uid int) bool {
	return uid == 0 || strconv.Itoa(uid) == os.Getenv("SUDO_UID")
}
