package python

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ttmem/symbolize"
)

// target is a process whose Python stacks are read. What reads them goes as the
// BPF programs have to: few reads of fixed sizes, bounded loops, and it is the
// reference for what they should find.
type target struct {
	mem     io.ReaderAt
	runtime *Runtime
	// base is the address of _PyRuntime in the process
	base    uint64
	pthread Pthread
}

// limits of what is read
const (
	maxFrames = 1024
	maxChars  = 4096
	maxLines  = 1 << 20
)

// attach looks for the interpreter of a process, and for its C library.
func attach(pid int) (*target, func(), error) {
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		return nil, nil, err
	}
	p := &target{mem: mem}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, nil, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(maps)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasPrefix(fields[5], "/") || seen[fields[5]] {
			continue
		}
		seen[fields[5]] = true
		if err := p.look(fields); err != nil {
			mem.Close()
			return nil, nil, err
		}
	}
	if p.runtime == nil || p.pthread.Level2Size == 0 {
		mem.Close()
		return nil, nil, errors.New("no interpreter or no C library")
	}
	return p, func() { mem.Close() }, nil
}

// look looks at the file of a line of /proc/PID/maps, the first of the file.
func (p *target) look(fields []string) error {
	e, err := symbolize.Open(fields[5])
	if err != nil {
		return nil // what is no ELF file
	}
	defer e.Close()
	if filepath.Base(fields[5]) == "libc.so.6" {
		if p.pthread, err = Threads(e); err != nil {
			return err
		}
	}
	r, err := Find(e)
	if err == ErrNotPython {
		return nil
	}
	if err != nil {
		return err
	}
	from, _, _ := strings.Cut(fields[0], "-")
	start, err := strconv.ParseUint(from, 16, 64)
	if err != nil {
		return err
	}
	offset, err := strconv.ParseUint(fields[2], 16, 64)
	if err != nil {
		return err
	}
	bias, ok := e.Bias(start, offset)
	if !ok {
		return errors.New("no bias")
	}
	p.runtime, p.base = r, bias+r.Runtime
	return nil
}

func (p *target) read(addr uint64, n int) ([]byte, error) {
	b := make([]byte, n)
	if n, err := p.mem.ReadAt(b, int64(addr)); err != nil {
		return nil, fmt.Errorf("reading %d bytes at %#x: %w", n, addr, err)
	}
	return b, nil
}

func (p *target) u64(addr uint64) (uint64, error) {
	b, err := p.read(addr, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

func (p *target) u32(addr uint64) (uint32, error) {
	b, err := p.read(addr, 4)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint32(b), nil
}

// byKey is the thread state of the thread whose descriptor is at fs, by the
// pthread key that the interpreter has for it; 0 if it has none.
func (p *target) byKey(fs uint64) (uint64, error) {
	b, err := p.read(p.base+p.runtime.Key, 8)
	if err != nil {
		return 0, err
	}
	if made := binary.LittleEndian.Uint32(b); made != 1 {
		return 0, fmt.Errorf("autoTSSkey is %d, not made", made)
	}
	key := binary.LittleEndian.Uint32(b[4:])
	block, err := p.u64(fs + uint64(p.pthread.Specific) + 8*uint64(key/p.pthread.Level2Size))
	if err != nil || block == 0 {
		return 0, err
	}
	return p.u64(block + uint64(key%p.pthread.Level2Size)*uint64(p.pthread.KeySize) + uint64(p.pthread.KeyData))
}

// byList are the thread states of the main interpreter, by pthread_t, which is
// also what is in FS base.
func (p *target) byList() (map[uint64]uint64, error) {
	o := &p.runtime.Offsets
	interpreter, err := p.u64(p.base + uint64(o.InterpretersHead))
	if err != nil {
		return nil, err
	}
	state, err := p.u64(interpreter + uint64(o.ThreadsHead))
	if err != nil {
		return nil, err
	}
	states := map[uint64]uint64{}
	for range maxFrames {
		if state == 0 {
			return states, nil
		}
		of, err := p.u64(state + uint64(o.ThreadInterp))
		if err != nil {
			return nil, err
		}
		if of != interpreter {
			return nil, fmt.Errorf("interpreter of a thread state is %#x, not %#x", of, interpreter)
		}
		id, err := p.u64(state + uint64(o.ThreadID))
		if err != nil {
			return nil, err
		}
		states[id] = state
		if state, err = p.u64(state + uint64(o.ThreadNext)); err != nil {
			return nil, err
		}
	}
	return nil, errors.New("no end of thread states")
}

// walkedFrame is a Python frame of a stack.
type walkedFrame struct {
	// code is the address of the code object, offset of the instruction from the
	// first code byte, in bytes.
	code   uint64
	offset int
	// last is set for the last of a call of _PyEval_EvalFrameDefault.
	last bool
}

// walk is the stack of a thread state, from the newest frame.
func (p *target) walk(state uint64) (frames []walkedFrame, err error) {
	o := &p.runtime.Offsets
	at, err := p.u64(state + uint64(o.ThreadFrame))
	if err != nil {
		return nil, err
	}
	if o.CFrame {
		if at, err = p.u64(at + uint64(o.CFrameFrame)); err != nil {
			return nil, err
		}
	}
	for range maxFrames {
		if at == 0 {
			return frames, nil
		}
		b, err := p.read(at, int(o.FrameSize))
		if err != nil {
			return nil, err
		}
		at = binary.LittleEndian.Uint64(b[o.FramePrevious:])
		f := walkedFrame{code: binary.LittleEndian.Uint64(b[o.FrameCode:]) &^ (1<<CodeTag - 1)}
		switch o.Marker {
		case MarkerNone:
			f.last = true
		case MarkerEntry:
			f.last = b[o.FrameMarker] == 1
		case MarkerCStack:
			if b[o.FrameMarker] >= OwnerCStack {
				if len(frames) > 0 {
					frames[len(frames)-1].last = true
				}
				continue
			}
		}
		if o.InstructionIndex {
			f.offset = int(int32(binary.LittleEndian.Uint32(b[o.FrameInstruction:]))) * codeUnit
		} else {
			f.offset = int(binary.LittleEndian.Uint64(b[o.FrameInstruction:]) - f.code - uint64(o.CodeBytes))
		}
		frames = append(frames, f)
	}
	return nil, errors.New("no end of frames")
}

// code copies a code object.
func (p *target) code(at uint64) (*Code, error) {
	o := &p.runtime.Offsets
	b, err := p.read(at, int(max(o.CodeName, o.CodeFile, o.CodeFirstLine, o.CodeLineTable)+8))
	if err != nil {
		return nil, err
	}
	pointer := func(offset uint32) uint64 { return binary.LittleEndian.Uint64(b[offset:]) }
	c := &Code{Minor: p.runtime.Minor, FirstLine: int(int32(binary.LittleEndian.Uint32(b[o.CodeFirstLine:])))}
	if c.Name, err = p.str(pointer(o.CodeName)); err != nil {
		return nil, fmt.Errorf("name: %w", err)
	}
	if c.File, err = p.str(pointer(o.CodeFile)); err != nil {
		return nil, fmt.Errorf("file: %w", err)
	}
	if o.CodeQualName != None {
		if c.QualName, err = p.str(pointer(o.CodeQualName)); err != nil {
			return nil, fmt.Errorf("qualified name: %w", err)
		}
	}
	table := pointer(o.CodeLineTable)
	size, err := p.u64(table + uint64(o.BytesSize))
	if err != nil {
		return nil, err
	}
	c.LineTable, err = p.read(table+uint64(o.BytesData), int(min(size, maxLines)))
	return c, err
}

// str copies a str object.
func (p *target) str(at uint64) (string, error) {
	o := &p.runtime.Offsets
	length, err := p.u64(at + uint64(o.StrLength))
	if err != nil {
		return "", err
	}
	state, err := p.u32(at + uint64(o.StrState))
	if err != nil {
		return "", err
	}
	start := at + uint64(o.StrOther)
	if ASCII(state) {
		start = at + uint64(o.StrASCII)
	}
	data, err := p.read(start, int(min(length, maxChars))*CharSize(state))
	if err != nil {
		return "", err
	}
	return DecodeString(state, data), nil
}
