package stack

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/fuzztest"
	"ttmem/symbolize/unwind"
	"ttmem/tracer/host"
)

// framesFile writes a file whose .eh_frame has about size bytes: functions with these
// instructions. Of a size of 0 bytes, it is a hole of claim bytes.
func framesFile(t *testing.T, size, claim int, instructions []byte) string {
	t.Helper()
	const sections, names, frames, text = 0x200, 0x400, 0x1000, 0x40000000
	path := filepath.Join(t.TempDir(), "frames.so")
	f, err := os.Create(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	out := bufio.NewWriterSize(f, 1<<20)
	_, err = f.Seek(frames, 0)
	qt.Assert(t, qt.IsNil(err))
	record := func(body []byte) int {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(body)))
		n, err := out.Write(append(b, body...))
		qt.Assert(t, qt.IsNil(err))
		return n
	}
	written := 0
	if size > 0 { // a CIE with addresses of four bytes
		written = record([]byte{0, 0, 0, 0, 1, 'z', 'R', 0, 1, 0x78, 16, 1, 3, 12, 7, 8, 0x90, 1, 0, 0})
	}
	for i := 0; written < size; i++ {
		body := binary.LittleEndian.AppendUint32(nil, uint32(written+4))
		body = binary.LittleEndian.AppendUint32(body, text+uint32(i)*64)
		body = append(binary.LittleEndian.AppendUint32(body, 64), 0)
		written += record(append(body, instructions...))
	}
	qt.Assert(t, qt.IsNil(out.Flush()))
	var head bytes.Buffer
	put := func(at int, v any) {
		head.Write(make([]byte, at-head.Len()))
		qt.Assert(t, qt.IsNil(binary.Write(&head, binary.LittleEndian, v)))
	}
	h := elf.Header64{
		Type: uint16(elf.ET_DYN), Machine: uint16(elf.EM_X86_64), Version: 1, Phoff: 64, Phnum: 1,
		Shoff: sections, Shnum: 3, Shstrndx: 2, Ehsize: 64, Phentsize: 56, Shentsize: 64,
	}
	copy(h.Ident[:], elf.ELFMAG)
	h.Ident[elf.EI_CLASS], h.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	put(0, h)
	put(64, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: text, Filesz: 1 << 30, Memsz: 1 << 30})
	put(sections, []elf.Section64{
		{}, {Name: 1, Type: uint32(elf.SHT_PROGBITS), Addr: 0x1000, Off: frames, Size: uint64(written + claim)},
		{Name: 11, Type: uint32(elf.SHT_STRTAB), Off: names, Size: 21},
	})
	put(names, []byte("\x00.eh_frame\x00.shstrtab\x00"))
	_, err = f.WriteAt(head.Bytes(), 0)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(f.Truncate(int64(frames+max(written+claim, 1<<28))))) // as much code as the index allows
	return path
}

// openFrames opens a file as one that a process maps.
func openFrames(t *testing.T, path string) *codeFile {
	t.Helper()
	f, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { f.Close() })
	info, err := f.Stat()
	qt.Assert(t, qt.IsNil(err))
	file := openCodeFile(f, info.Size(), path, nil)
	qt.Assert(t, qt.IsNotNil(file.elf))
	return file
}

// peakMiB is the most memory that the test took since the last call with reset.
func peakMiB(reset bool) (kib int) {
	if reset {
		debug.FreeOSMemory()
		_ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0)
	}
	text, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			fmt.Sscan(rest, &kib)
		}
	}
	return kib >> 10
}

// The unwind information that costs most is read in bounded memory, or refused.
func TestMemoryForUnwindRows(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100)) // make sets another one for tests
	rows := bytes.Repeat([]byte{0x41, 14, 16, 0x41, 14, 24}, 20)
	for name, c := range map[string]struct {
		size, claim  int
		instructions []byte
		refused      bool
	}{
		"most rows":           {48 << 20, 0, rows[:36], false},
		"too many rows":       {63 << 20, 0, rows[:120], true},
		"most functions":      {unwind.MaxFrames - 1<<20, 0, make([]byte, 51), false},
		"too many functions":  {unwind.MaxFrames - 1<<20, 0, rows[:3], true},
		"a hole":              {0, unwind.MaxFrames, nil, false},
		"a hole beyond limit": {0, 250 << 20, nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := NewSpaces(new(host.Readers), func(string) {})
			s.rows.tables = tableStore(t, 8192)
			file := openFrames(t, framesFile(t, c.size, c.claim, c.instructions))
			before := peakMiB(true)
			qt.Assert(t, qt.IsNil(s.rows.read(file, s.check)))
			took := peakMiB(false) - before
			t.Logf("%d MiB", took)
			qt.Check(t, qt.IsTrue(took < 200))
			qt.Check(t, qt.IsTrue(peakMiB(true)-before < 10)) // nothing stays
			if c.refused {
				qt.Check(t, qt.ErrorIs(file.refusal, unwind.ErrTooLarge))
			} else {
				qt.Check(t, qt.IsNil(file.refusal))
				qt.Check(t, qt.Equals(file.table != nil, c.size > 0))
			}
		})
	}
}

// The end of tracing does not wait for a large file: reading asks often whether to go on, and ends
// when it is not to.
func TestCloseWhileALargeFileIsRead(t *testing.T) {
	path := framesFile(t, 60<<20, 0, make([]byte, 51))
	s := NewSpaces(new(host.Readers), func(string) {})
	s.rows.tables = tableStore(t, 4096)
	asked, most := 0, 1000
	file := openFrames(t, path)
	err := s.rows.read(file, func() error {
		if asked++; asked == most {
			s.cancel()
		}
		return s.check()
	})
	qt.Check(t, qt.ErrorIs(err, errStopped))
	qt.Check(t, qt.Equals(asked, most))
	qt.Check(t, qt.IsNil(file.table))

	s.rows.begin([]*codeFile{openFrames(t, path)})
	fuzztest.Ends("the end of tracing", s.Close)
}
