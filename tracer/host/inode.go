package host

import (
	"os"

	"golang.org/x/sys/unix"
)

// The kernel attaches uprobes to inodes. On overlayfs, which container runtimes use, a file
// of an image is one inode of the lower file system, but appears in each container as a
// file with its own device and inode number. Probes placed through two of them would be hit
// twice.

// InodeHandle identifies the inode with a file's content among all inodes that its file
// system ever had: see name_to_handle_at(2). The zero value stands for a file system
// without handles.
type InodeHandle struct {
	kind     int32
	fid      string
	overlaid bool // opened through overlayfs
}

// A handle of overlayfs contains that of the lower file: struct ovl_fh in the kernel's
// fs/overlayfs/overlayfs.h. It is 3 bytes of padding, version, magic, length from the
// version on, flags, kind, the UUID of the lower file system, and its handle.
const (
	overlayKind   = 0xf8
	overlayMagic  = 0xfb
	overlayHeader = 24
)

// atHandleFID is AT_HANDLE_FID of Linux 6.5 and later: the handle will not be opened, so
// overlayfs returns one too.
const atHandleFID = 0x200

// HandleOf returns the zero value if there is no handle.
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

// SameInode reports whether two files that differ in device or number are one inode. Inode
// numbers and generations alone could agree in two file systems by chance, or because one
// is a copy of the other: then neither is an overlay, or sizes and times differ.
func SameInode(a, b InodeHandle, x, y os.FileInfo) bool {
	return (a.overlaid || b.overlaid) && a.kind == b.kind && a.fid != "" && a.fid == b.fid &&
		x.Size() == y.Size() && x.ModTime().Equal(y.ModTime())
}
