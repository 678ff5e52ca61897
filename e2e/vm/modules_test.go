package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestLoadOrder(t *testing.T) {
	needs := parseNeeds(`kernel/fs/ext4/ext4.ko.xz: kernel/lib/crc16.ko.xz kernel/fs/mbcache.ko.xz kernel/fs/jbd2/jbd2.ko.xz
kernel/fs/jbd2/jbd2.ko.xz: kernel/lib/crc16.ko.xz
kernel/fs/mbcache.ko.xz:
kernel/lib/crc16.ko.xz:
kernel/drivers/block/virtio-blk.ko: kernel/drivers/virtio/virtio.ko
kernel/drivers/virtio/virtio.ko:
kernel/other.ko.zst: kernel/lib/crc16.ko.xz
`)
	qt.Check(t, qt.DeepEquals(loadOrder(needs, []string{"virtio_blk", "ext4"}), []string{
		"kernel/drivers/virtio/virtio.ko",
		"kernel/drivers/block/virtio-blk.ko",
		"kernel/lib/crc16.ko.xz",
		"kernel/fs/mbcache.ko.xz",
		"kernel/fs/jbd2/jbd2.ko.xz",
		"kernel/fs/ext4/ext4.ko.xz",
	}))
	qt.Check(t, qt.Equals(find(needs, "nothing"), ""))
}

func TestModuleName(t *testing.T) {
	for path, name := range map[string]string{
		"a/virtio_blk.ko": "virtio_blk", "a/crc32c-intel.ko.xz": "crc32c_intel", "ext4.ko.zst": "ext4",
	} {
		qt.Check(t, qt.Equals(moduleName(path), name))
	}
}
