package owner

import (
	"context"
	"errors"
	"path"
	"strings"

	"ttmem/symbolize"
	"ttmem/symbolize/python"
	"ttmem/tracer/heap/accessor"
	"ttmem/tracer/host"
)

// ErrNoPython means that a process has no Python interpreter whose heap can be read.
var ErrNoPython = errors.New("no Python whose heap can be read")

// A Holder is who holds a buffer, and what it holds there.
type Holder struct {
	Path   Path
	Tensor Tensor
}

const (
	// maxFiles bounds the mapped files that are looked at.
	maxFiles = 512
	// tensorBytes is how much is read of tensors.
	tensorBytes = 4 << 30
)

// A process has the files that its Python and its ttnn consist of.
type process struct {
	heap    *Heap
	tensors *Tensors
	read    *pages // of the tensors
	files   []*symbolize.ELF
}

func (p *process) close() {
	for _, e := range p.files {
		e.Close()
	}
}

// Holders returns who holds Buffers of a process, by their addresses. buffers has their ids. It reads the
// process's memory while it goes on. The error says why the search ended early; the holders that
// were found are right in any case.
func Holders(ctx context.Context, readers *host.Readers, pid int, buffers map[uint64]uint64) (map[uint64]Holder, Cost, error) {
	p, err := open(ctx, readers, pid)
	if err != nil {
		return nil, Cost{}, err
	}
	defer p.close()
	first := make(map[uint64]uint64) // the Buffer of each tensor
	seen := make(map[uint64]bool)    // Buffers
	found, cost, err := p.heap.Find(ctx, Limits{}, func(instance uint64) (enough bool) {
		t, err := p.tensors.Read(instance)
		if _, wanted := buffers[t.Buffer]; err != nil || !wanted {
			return false
		}
		first[instance], seen[t.Buffer] = t.Buffer, true
		return len(seen) == len(buffers)
	})
	holders := make(map[uint64]Holder)
	p.read.forget()
	for _, o := range found {
		t, failed := p.tensors.Read(o.Object) // a second time
		if before, known := holders[t.Buffer]; known && (t.View || !before.Tensor.View) {
			continue
		}
		if buffer, known := first[o.Object]; known && failed == nil && buffer == t.Buffer {
			holders[t.Buffer] = Holder{o.Path, t}
		}
	}
	return holders, cost, err
}

// open finds the interpreter and the libraries of a process.
func open(ctx context.Context, readers *host.Readers, pid int) (p *process, err error) {
	maps, err := readers.CodeMappings(pid)
	if err != nil {
		return nil, err
	}
	memory := readers.Of(pid)
	p = &process{read: newPages(ctx, memory, tensorBytes)}
	p.tensors = &Tensors{Machine: &accessor.Machine{Read: p.read.read}}
	for _, m := range maps[:min(len(maps), maxFiles)] {
		base := path.Base(m.Path)
		library := strings.HasPrefix(base, "libtt_metal") || strings.Contains(base, "ttnncpp")
		if !library && (p.heap != nil || !strings.Contains(base, "python")) {
			continue
		}
		file, err := readers.OpenMapped(pid, m.Start, m.End)
		if err != nil {
			continue
		}
		e, err := symbolize.OpenFile(file)
		if err != nil {
			file.Close()
			continue
		}
		p.files = append(p.files, e)
		bias, ok := e.Bias(m.Start, m.Offset)
		if !ok {
			continue
		}
		if library {
			p.tensors.Machine.Modules = append(p.tensors.Machine.Modules, accessor.Module{
				Start: m.Start, End: m.End, Bias: bias, PLT: e.PLTName,
				Function: func(name string) (uint64, bool) {
					s, ok := e.Lookup(name)
					return s.Addr, ok
				},
			})
			continue
		}
		if runtime, err := python.Find(e); err == nil {
			p.heap = &Heap{
				Memory: memory, Runtime: runtime, Bias: bias, IsTarget: isTensor, User: isUsers,
				Symbols: func(name string) uint64 {
					s, _ := e.Lookup(name)
					return s.Addr
				},
			}
		}
	}
	if p.heap == nil {
		p.close()
		return nil, ErrNoPython
	}
	return p, nil
}

// isTensor reports whether a type is that of ttnn's tensors, which nanobind makes.
func isTensor(name, metaclass string) bool {
	return (name == "Tensor" || strings.HasSuffix(name, ".Tensor")) && strings.Contains(metaclass, "nb_type")
}

// isUsers reports whether a module belongs to the user's program: it is in no directory of
// libraries.
func isUsers(name, file string) bool {
	return file != "" && !strings.Contains(file, "/lib/python3") && !strings.Contains(file, "/site-packages/") &&
		!strings.Contains(file, "/dist-packages/") && !strings.HasPrefix(name, "ttnn")
}
