package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// The kernel has uprobes on inodes. On overlayfs, which container runtimes use, a file
// of an image is one inode of the file system below, and a file with a device and an
// inode number of its own in each container: probes placed through two of them would
// be hit twice.

// InodeHandle names the inode that has a file's content, as its file system tells it
// apart from all that it ever had: see name_to_handle_at(2). The zero value is a file
// whose file system has no handles.
type InodeHandle struct {
	kind     int32
	fid      string
	overlaid bool // it was reached through overlayfs
}

// A handle of overlayfs has the one of the file below: struct ovl_fh in the kernel's
// fs/overlayfs/overlayfs.h. It is 3 bytes of padding, version, magic, length from the
// version on, flags, kind, the UUID of the file system below, and its handle.
const (
	overlayKind   = 0xf8
	overlayMagic  = 0xfb
	overlayHeader = 24
)

// atHandleFID is AT_HANDLE_FID of Linux 6.5 and later: the handle is not to be opened,
// so that overlayfs gives one too.
const atHandleFID = 0x200

// HandleOf is the zero value where there is none.
func HandleOf(file *os.File) InodeHandle {
	h, _, err := unix.NameToHandleAt(int(file.Fd()), "", unix.AT_EMPTY_PATH|atHandleFID)
	if err != nil {
		return InodeHandle{}
	}
	handle := InodeHandle{kind: h.Type(), fid: string(h.Bytes())}
	for handle.kind == overlayKind {
		b := []byte(handle.fid)
		if len(b) <= overlayHeader || b[4] != overlayMagic {
			return InodeHandle{}
		}
		end := min(3+int(b[5]), len(b))
		if end <= overlayHeader {
			return InodeHandle{}
		}
		// handles are rounded up to whole words
		handle = InodeHandle{kind: int32(b[7]), fid: string(b[overlayHeader:end]), overlaid: true}
	}
	return handle
}

// SameInode reports whether two files that differ in device or number are one inode.
// Numbers and generations alone might agree in two file systems by chance, or because
// one was copied to the other: then neither is an overlay, or their sizes and times
// tell.
func SameInode(a, b InodeHandle, x, y os.FileInfo) bool {
	return (a.overlaid || b.overlaid) && a.kind == b.kind && a.fid != "" && a.fid == b.fid &&
		x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}
