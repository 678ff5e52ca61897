package tracer

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"ttmem/symbolize"
	"ttmem/tracer/event"
)

// callMarks places probes on the functions whose calls are marks, in every file that a
// traced process maps. Its methods do nothing where there is none.
type callMarks struct {
	names   []string
	program *ebpf.Program
	warn    func(string)

	// waiting are files that were mapped and not looked at.
	waiting chan *os.File
	working sync.WaitGroup

	mu      sync.Mutex
	files   []markedFile
	unread  int        // files that wait, or are being read
	settled *sync.Cond // there are none
	found   []bool     // by name
	links   []link.Link
}

// A markedFile is a file that was looked at.
type markedFile struct {
	info os.FileInfo
	path string
}

func newCallMarks(names []string, program *ebpf.Program, warn func(string)) *callMarks {
	c := &callMarks{
		names: names, program: program, warn: warn, found: make([]bool, len(names)),
		waiting: make(chan *os.File, 1024),
	}
	c.settled = sync.NewCond(&c.mu)
	c.working.Go(func() {
		for file := range c.waiting {
			c.place(file)
			file.Close()
			c.mu.Lock()
			if c.unread--; c.unread == 0 {
				c.settled.Broadcast()
			}
			c.mu.Unlock()
		}
	})
	return c
}

// meet has a mapped file looked at. To read its symbols takes a while, and is done
// elsewhere.
func (c *callMarks) meet(m mapping) {
	if c == nil {
		return
	}
	file, err := openMapped(m.pid, m.start, m.end)
	if err != nil {
		return // the process has ended, or mapped something else
	}
	c.take(file)
}

// prepare looks at files before a process maps them.
func (c *callMarks) prepare(paths []string) {
	if c == nil {
		return
	}
	for _, path := range paths {
		if file, err := os.Open(path); err == nil {
			c.take(file)
		}
	}
	c.wait()
}

// wait waits until all files that were met have been looked at.
func (c *callMarks) wait() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.unread > 0 {
		c.settled.Wait()
	}
}

func (c *callMarks) take(file *os.File) {
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || !c.isNew(info, file.Name()) {
		file.Close()
		return
	}
	c.waiting <- file
}

// isNew reports whether a file was never met, and is to be read.
func (c *callMarks) isNew(info os.FileInfo, name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.files {
		if os.SameFile(c.files[i].info, info) {
			return false
		}
	}
	path, err := os.Readlink(name) // of /proc/PID/map_files
	if err != nil {
		path = name
	}
	c.files = append(c.files, markedFile{info, path})
	c.unread++
	return true
}

// place places the probes of a file that has functions of those names.
func (c *callMarks) place(file *os.File) {
	info, err := file.Stat()
	if err != nil {
		return
	}
	e, err := symbolize.New(file, info.Size())
	if err != nil {
		return // no library, but something else that is mapped
	}
	defer e.Close()
	addresses, cookies := functionsNamed(e, c.names)
	if len(addresses) == 0 {
		return
	}
	exe, err := link.OpenExecutable(fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
	if err == nil {
		var l link.Link
		l, err = exe.UprobeMulti(nil, c.program, &link.UprobeMultiOptions{Addresses: addresses, Cookies: cookies})
		if err == nil {
			c.mu.Lock()
			c.links = append(c.links, l)
			c.mu.Unlock()
		}
	}
	if errors.Is(err, ebpf.ErrNotSupported) {
		err = errors.New("this kernel has no uprobe_multi (Linux 6.6 and later have)")
	}
	if err != nil {
		c.warn(fmt.Sprintf("--mark-at: calls in %s are not seen: %v", file.Name(), err))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cookie := range cookies {
		c.found[cookie] = true
	}
}

// maxMarkedFunctions is how many functions of a file may have one name: overloads, and
// what templates were made into.
const maxMarkedFunctions = 256

// functionsNamed are the places in the file where functions of the names begin, with the
// name's number for each.
func functionsNamed(e *symbolize.ELF, names []string) (offsets, numbers []uint64) {
	seen := make(map[uint64]bool)
	count := make([]int, len(names))
	eachCode(e, func(symbol string, offset uint64) {
		if seen[offset] {
			return
		}
		for i, name := range names {
			if count[i] < maxMarkedFunctions && isNamed(symbol, name) {
				seen[offset] = true
				count[i]++
				offsets, numbers = append(offsets, offset), append(numbers, uint64(i))
				return
			}
		}
	})
	return offsets, numbers
}

// eachCode calls f with each symbol that lies in code.
func eachCode(e *symbolize.ELF, f func(symbol string, offset uint64)) {
	for _, s := range e.WithPrefix("") {
		if s.Size > 0 && inCode(e, s.Addr) {
			if offset, ok := e.FileOffset(s.Addr); ok {
				f(s.Name, offset)
			}
		}
	}
}

// inCode reports whether a virtual address is in a segment that is run.
func inCode(e *symbolize.ELF, vaddr uint64) bool {
	for _, p := range e.ProgramHeaders() {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			return true
		}
	}
	return false
}

// isNamed reports whether a symbol is what the user calls name: itself, or its form for
// people with or without parameters.
func isNamed(symbol, name string) bool {
	if symbol == name {
		return true
	}
	// its last part is in the mangled name, too, and is looked for at less cost
	if !strings.Contains(symbol, lastIdentifier(name)) {
		return false
	}
	return symbolize.ShortName(symbol) == name || strings.Contains(name, "(") && symbolize.FullName(symbol) == name
}

// lastIdentifier is the last one of the function's own name: softmax of ttnn::softmax,
// and of ttnn::softmax(int).
func lastIdentifier(name string) string {
	name, _, _ = strings.Cut(name, "(")
	if i := strings.LastIndex(name, "::"); i >= 0 {
		name = name[i+2:]
	}
	name = strings.TrimPrefix(name, "~")
	if strings.HasPrefix(name, "operator") || strings.ContainsAny(name, "<{ ") {
		return ""
	}
	return name
}

// settle waits until the files that are mapped by now have been looked at. Unless
// others are to come, it tells what was not found.
func (c *callMarks) settle(more bool) {
	if c == nil {
		return
	}
	c.wait()
	if !more {
		c.tell()
	}
}

// tell tells which functions were not found, once.
func (c *callMarks) tell() {
	if c == nil {
		return
	}
	c.wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, name := range c.names {
		if c.found[i] {
			continue
		}
		c.found[i] = true
		text := fmt.Sprintf("--mark-at %s: no native function of that name is in the %d files that were mapped", name, len(c.files))
		if near := c.nearest(name); len(near) > 0 {
			text += "; there is " + strings.Join(near, ", ")
		} else {
			text += "; a function of Python has no address: take a native one that it calls, or `ttmem mark`"
		}
		c.warn(text)
	}
}

func (c *callMarks) close() {
	if c == nil {
		return
	}
	close(c.waiting)
	c.working.Wait()
	for _, l := range c.links {
		l.Close()
	}
}

// mark tells of a call, and reports whether its name is known.
func (d *decoder) mark(e event.Event, name uint32) bool {
	if int(name) >= len(d.markAt) {
		return false
	}
	e.Kind, e.Cause, e.UID = event.Mark, d.markAt[name], d.startOf(e.PID).UID
	d.emit(e)
	return true
}
