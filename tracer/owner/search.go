package owner

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// A search runs in a child process: it parses what another user's process made, so its memory is
// bounded, it has no rights but that of reading memory, and it can be left behind if that never answers.

// A Holder is who holds a buffer, and what it holds there: a tensor, or the type of another object, such
// as global_semaphore.
type Holder struct {
	Path, Tensor string
}

// Cost is what a search took.
type Cost struct {
	// Objects were reached, and Bytes read.
	Objects int
	Bytes   int64
	// Memory is the most that it had, in bytes, and CPU the time of processors.
	Memory int64
	CPU    time.Duration
}

// errNoFunctions means that tensors cannot be read.
var errNoFunctions = errors.New("no file that it maps has ttnn's functions")

const (
	searcherName = "ttmem-searcher"
	// Niceness lets a busy host run other programs first.
	Niceness = 5
	// maxMemory ends a search; its tables stay below that.
	maxMemory = 768 << 20
	// maxAnswer bounds the holders, in bytes.
	maxAnswer = 32 << 20
	// signInterval is how often a search that works gives a sign, and patience how long one without a
	// sign may take: the memory does not answer. At that time a processor worked for signTime.
	signInterval, patience = 2 * time.Second, 30 * time.Second
	signTime               = time.Millisecond
)

type question struct {
	Thread int
	// Maps are those of the Files that the child has.
	Maps    []mapped
	Files   int
	Buffers []uint64
}

type answer struct {
	Holders  map[uint64]Holder
	Cost     Cost
	Error    string
	NoPython bool
}

// Holders returns who holds Buffers of a process, by their addresses. buffers has their ids. It reads the
// process's memory while it goes on. The error says why the search is incomplete; the holders that
// were found are right in any case.
func (s *Searcher) Holders(ctx context.Context, readers *host.Readers, pid int, buffers map[uint64]uint64) (map[uint64]Holder, Cost, error) {
	o, err := s.open(ctx, &readers.Proc, pid)
	if err != nil {
		return nil, Cost{}, err
	}
	defer o.close()
	if len(o.files) == 0 {
		return nil, Cost{}, cmp.Or(o.unread, ErrNoPython)
	}
	p := readers.Of(pid)
	q := question{Maps: o.maps, Files: len(o.files)}
	if q.Thread, err = p.Thread(); err != nil {
		return nil, Cost{}, err
	}
	for at := range buffers {
		q.Buffers = append(q.Buffers, at)
	}
	text, err := json.Marshal(q)
	if err != nil {
		return nil, Cost{}, err
	}
	if text, err = p.Search(ctx, searcherName, o.files, text, patience, 2*maxAnswer); err != nil {
		return nil, Cost{}, err
	}
	var a answer
	if err := json.Unmarshal(text, &a); err != nil {
		return nil, Cost{}, fmt.Errorf("the search ended: %w", err)
	}
	switch {
	case o.over != nil:
		err = o.over
	case o.kinds != hasPython|hasFunctions && o.unread != nil:
		err = o.unread
	case a.NoPython:
		err = ErrNoPython
	case a.Error != "":
		err = errors.New(a.Error)
	case o.kinds&hasFunctions == 0:
		err = errNoFunctions
	}
	return a.Holders, a.Cost, err
}

func init() {
	if len(os.Args) == 1 && os.Args[0] == searcherName {
		answerQuestion(os.Stdin, os.Stdout)
		os.Exit(0)
	}
}

// answerQuestion is the child's part.
func answerQuestion(from io.Reader, to io.Writer) {
	_ = unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(unsafe.StringData(searcherName+"\x00"))), 0, 0, 0)
	_ = unix.Setpriority(unix.PRIO_PGRP, 0, Niceness) // of all threads: the group is its own
	_ = unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: maxMemory, Max: maxMemory})
	var q question
	if json.NewDecoder(from).Decode(&q) != nil {
		return
	}
	go func() {
		_, _ = io.Copy(io.Discard, from) // until the parent ends
		os.Exit(1)
	}()
	files := make([]*os.File, q.Files)
	for i := range files {
		files[i] = os.NewFile(uintptr(3+i), "file")
	}
	ended := make(chan struct{})
	go giveSigns(to, ended)
	var a answer
	var err error
	a.Holders, a.Cost, err = newProcess(&host.ThreadMemory{Thread: q.Thread, Paced: true}, q.Maps, files).holders(q.Buffers)
	if a.NoPython = errors.Is(err, ErrNoPython); err != nil {
		a.Error = err.Error()
	}
	a.Cost.Memory = mostMemory()
	a.Cost.CPU = host.ProcessorTime()
	ended <- struct{}{}
	_ = json.NewEncoder(to).Encode(a)
}

// giveSigns writes a blank, which JSON may begin with, now and then while the search works.
func giveSigns(to io.Writer, ended <-chan struct{}) {
	for before := host.ProcessorTime(); ; {
		select {
		case <-ended:
			return
		case <-time.After(signInterval):
		}
		if now := host.ProcessorTime(); now-before > signTime {
			_, _ = to.Write([]byte(" "))
			before = now
		}
	}
}

// size returns how many bytes of an answer it takes.
func (h *Holder) size() int {
	b, _ := json.Marshal(h)
	const key = 32
	return len(b) + key
}

// mostMemory returns the most memory that this process had. That of getrusage(2) includes its parent's.
func mostMemory() (kilobytes int64) {
	text, _ := os.ReadFile("/proc/self/status")
	_, after, _ := bytes.Cut(text, []byte("VmHWM:"))
	_, _ = fmt.Fscan(bytes.NewReader(after), &kilobytes)
	return kilobytes << 10
}

// holders returns who holds Buffers. What Python holds is named by its path there, even if the
// library holds it as well.
func (p *process) holders(buffers []uint64) (map[uint64]Holder, Cost, error) {
	wanted := make(map[uint64]bool, len(buffers))
	for _, at := range buffers {
		wanted[at] = true
	}
	native := newNatives(p.tensors, wanted)
	p.memory.allow(nativeBytes)
	devices := native.devices(buffers)
	cached := native.cached(devices)
	nativeErr := p.memory.allow(0)
	first := make(map[uint64][]uint64) // the Buffers of each instance
	seen := make(map[uint64]bool)      // Buffers; without cached, as a cached program may have an old pointer
	var found []Owned
	var cost Cost
	err := p.noHeap
	if p.heap != nil {
		found, cost, err = p.heap.Find(Limits{}, func(instance uint64) (enough bool) {
			held := native.held(instance)
			if len(held) > 0 {
				first[instance] = held
			}
			for _, at := range held {
				seen[at] = true
			}
			return len(seen) == len(wanted)
		})
	}
	holders := make(map[uint64]Holder)
	views := make(map[uint64]bool)
	size := 0
	p.memory.allow(confirmBytes)
	for _, o := range found {
		for _, buffer := range first[o.Object] {
			if _, has := holders[buffer]; has && !views[buffer] {
				continue
			}
			t, still := native.stillHeld(o.Object, buffer) // a second time
			if _, has := holders[buffer]; !still || has && t.View {
				continue
			}
			h := Holder{o.Path.String(), t.String()}
			if h.Tensor == "" { // Python 3.12 puts the module before the name
				of := native.typeName(o.Object)
				h.Tensor = of[strings.LastIndexByte(of, '.')+1:]
			}
			if size += h.size(); size > maxAnswer {
				return holders, cost, tooMany{maxAnswer >> 20, "MiB of names"}
			}
			holders[buffer], views[buffer] = h, t.View
		}
	}
	err = cmp.Or(err, p.memory.allow(nativeBytes))
	p.memory.forget()
	for _, at := range buffers { // first: a cached program may have an old pointer to it
		if _, has := holders[at]; !has && native.isTrace(at) {
			holders[at] = Holder{Path: event.OwnerTraces}
		}
	}
	for at, path := range native.cached(devices) {
		if _, has := holders[at]; !has && cached[at] == path {
			holders[at] = Holder{Path: path}
		}
	}
	return holders, cost, cmp.Or(err, nativeErr, p.memory.err, native.missed)
}
