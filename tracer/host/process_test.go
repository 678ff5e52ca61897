package host

import (
	"encoding/binary"
	"os"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestParseMapsLine(t *testing.T) {
	for line, want := range map[string]Mapping{
		"7f0c8a400000-7f0c8b200000 r-xp 00785000 fe:00 525741    /usr/lib/libtt_metal.so": {
			0x7f0c8a400000, 0x7f0c8b200000, 0x785000, FileID{0xfe, 0, 525741, 0}, "/usr/lib/libtt_metal.so",
		},
		"1000-2000 r-xp 00000000 08:1 9 /tmp/a b/x.so (deleted)": {
			0x1000, 0x2000, 0, FileID{8, 1, 9, 0}, "/tmp/a b/x.so",
		},
		"7ffd1000-7ffd2000 r-xp 00000000 00:00 0                  [vdso]": {
			0x7ffd1000, 0x7ffd2000, 0, FileID{}, "[vdso]",
		},
		"1000-2000 rwxp 00000000 00:00 0 ": {0x1000, 0x2000, 0, FileID{}, ""},
	} {
		m, ok := ParseCodeMapping(line)
		qt.Assert(t, qt.IsTrue(ok), qt.Commentf("%s", line))
		qt.Check(t, qt.Equals(m, want))
	}
	for _, line := range []string{
		"", "x", "1000-2000 rw-p 00000000 08:1 9 /data", "2000-1000 r-xp 00000000 08:1 9 /x",
		"1000 r-xp 0 08:1 9 /x", "1000-2000 r-xp 0 08 9 /x", "1000-2000 r-xp q 08:1 9 /x", "1000-2000 r-xp 0 08:1 q /x",
		"ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]",
	} {
		_, ok := ParseCodeMapping(line)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s", line))
	}
}

// TestResidentMemoryOfThisProcess: it is there, at most what it was at most, and grows with memory that is used.
func TestResidentMemoryOfThisProcess(t *testing.T) {
	before, most, ok := ResidentMemory(os.Getpid())
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.IsTrue(before > 1<<20 && before <= most), qt.Commentf("%d %d", before, most))
	used := make([]byte, 64<<20)
	for i := 0; i < len(used); i += os.Getpagesize() {
		used[i] = 1
	}
	_, after, ok := ResidentMemory(os.Getpid())
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.IsTrue(after >= uint64(len(used))), qt.Commentf("%d", after))
	runtime.KeepAlive(used)
}

func TestResidentMemoryOfAStatus(t *testing.T) {
	for text, want := range map[string]uint64{
		"Name:\tVmRSS: 9 kB\nVmHWM:\t    1024 kB\nVmRSS:\t     512 kB\n": 512 << 10,
		"VmRSS:\t0 kB\n": 0,
	} {
		bytes, ok := kilobytesOf(text, "VmRSS")
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%q", text))
		qt.Check(t, qt.Equals(bytes, want), qt.Commentf("%q", text))
	}
	for _, text := range []string{"", "Name:\tcat\nState:\tZ (zombie)\n", "VmRSS:\t12 MB\n", "VmRSS:\t-1 kB\n", "VmRSS:\t18446744073709551615 kB\n", "VmRSS: kB\n"} {
		_, ok := kilobytesOf(text, "VmRSS")
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%q", text))
	}
	_, _, ok := ResidentMemory(1 << 30)
	qt.Check(t, qt.IsFalse(ok))
}

func TestParseDataMapping(t *testing.T) {
	for line, want := range map[string]Mapping{
		"00a70000-00a91000 rw-p 00000000 00:00 0 [heap]":                             {Start: 0xa70000, End: 0xa91000, Path: "[heap]"},
		"7f12a4000000-7f12a4021000 rw-p 00000000 00:00 0":                            {Start: 0x7f12a4000000, End: 0x7f12a4021000},
		"7f12a4000000-7f12a4021000 rw-p 00000000 00:00 0 [anon:glibc: malloc arena]": {Start: 0x7f12a4000000, End: 0x7f12a4021000, Path: "[anon:glibc:"},
	} {
		m, ok := parseDataMapping(line)
		qt.Check(t, qt.IsTrue(ok), qt.Commentf("%s", line))
		qt.Check(t, qt.Equals(m, want))
	}
	for _, line := range []string{
		"7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]", "7f12a4000000-7f12a4021000 ---p 00000000 00:00 0",
		"7f12a4000000-7f12a4021000 rw-s 00000000 00:01 7 /dev/shm/x",
		"7f12a4000000-7f12a4021000 rw-p 00001000 fe:00 525741 /usr/lib/libc.so.6",
		"7f12a4021000-7f12a4000000 rw-p 00000000 00:00 0", "",
	} {
		_, ok := parseDataMapping(line)
		qt.Check(t, qt.IsFalse(ok), qt.Commentf("%s", line))
	}
}

// FuzzParseMapping: the path of a file may have any bytes but a newline.
func FuzzParseMapping(f *testing.F) {
	f.Add("7f0c8a400000-7f0c8b200000 r-xp 00785000 fe:00 525741    /usr/lib/libtt_metal.so")
	f.Add("1000-2000 rwxp 00000000 00:00 0 ")
	f.Add("7f12a4000000-7f12a4021000 rw-p 00000000 00:00 0 [anon:glibc: malloc arena]")
	f.Add("1000-2000 r-xp 00000000 08:1 9 /tmp/a b/x.so (deleted)")
	f.Fuzz(func(t *testing.T, line string) {
		code, isCode := ParseCodeMapping(line)
		data, isData := parseDataMapping(line)
		for _, m := range []Mapping{code, data} {
			if isCode && m == code || isData && m == data {
				qt.Check(t, qt.IsTrue(m.Start < m.End && m.Start < 1<<63))
				qt.Check(t, qt.StringContains(line, m.Path))
			}
		}
		qt.Check(t, qt.IsFalse(isData && data.File.Inode != 0))
		qt.Check(t, qt.IsFalse(isCode && isData && code != data))
	})
}

func FuzzParseMmap2(f *testing.F) {
	f.Add(make([]byte, 80))
	f.Fuzz(func(t *testing.T, body []byte) {
		m, ok := parseMmap2(body)
		qt.Check(t, qt.Equals(ok, len(body) >= 72))
		if ok {
			qt.Check(t, qt.Equals(m.PID, int(binary.NativeEndian.Uint32(body))))
		}
	})
}

// The identity of a file equals the one in the maps of the processes that map it.
func TestIdentity(t *testing.T) {
	exe, err := os.Open("/proc/self/exe")
	qt.Assert(t, qt.IsNil(err))
	defer exe.Close()
	id, err := FileIDOf(exe)
	qt.Assert(t, qt.IsNil(err))
	maps, err := new(Proc).FileMappings(os.Getpid())
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(id, maps[0].File))
}
