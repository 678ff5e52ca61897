package event

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A Reader reads the lines that Event.AppendJSON writes.
type Reader struct {
	lines *bufio.Reader
	line  int
}

// NewReader returns a Reader of the event records in r, one a line.
func NewReader(r io.Reader) *Reader {
	return &Reader{lines: bufio.NewReaderSize(r, 64<<10)}
}

// Next is the next event, or io.EOF after the last one. Any other error names
// the line, and reading can go on after it with the next one. A last line that
// was cut short (its writer was killed) is an error that wraps
// io.ErrUnexpectedEOF. Fields that this version does not know are ignored.
func (r *Reader) Next() (Event, error) {
	for {
		line, err := r.lines.ReadBytes('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return Event{}, fmt.Errorf("line %d: %w", r.line+1, err)
		}
		if len(line) == 0 {
			return Event{}, io.EOF
		}
		r.line++
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		e, parseErr := parse(line)
		if parseErr != nil && err != nil && !json.Valid(line) {
			return Event{}, fmt.Errorf("line %d: the record is cut short: %w", r.line, io.ErrUnexpectedEOF)
		}
		if parseErr != nil {
			return Event{}, fmt.Errorf("line %d: %w", r.line, parseErr)
		}
		return e, nil
	}
}

// record has the fields of every kind of event.
type record struct {
	V             *int                `json:"v"`
	TimeNs        uint64              `json:"time_ns"`
	Kind          string              `json:"kind"`
	PID           int                 `json:"pid"`
	TID           int                 `json:"tid"`
	Comm          string              `json:"comm"`
	Devices       []int               `json:"devices"`
	Region        string              `json:"region"`
	BufferID      uint64              `json:"buffer_id"`
	Object        uint64              `json:"object"`
	Allocator     uint64              `json:"allocator"`
	Address       uint64              `json:"address"`
	SizeBytes     uint64              `json:"size_bytes"`
	PageSizeBytes uint64              `json:"page_size_bytes"`
	Layout        string              `json:"layout"`
	BytesPerBank  uint64              `json:"bytes_per_bank"`
	Banks         uint32              `json:"banks"`
	ProgramID     uint64              `json:"program_id"`
	Cores         [][]uint16          `json:"cores"`
	StaticKind    string              `json:"static_kind"`
	Global        bool                `json:"global"`
	PerCore       bool                `json:"per_core"`
	Reason        string              `json:"reason"`
	Message       string              `json:"message"`
	BeforeAttach  bool                `json:"before_attach"`
	Capacities    map[string]capacity `json:"capacities"`
	Board         string              `json:"board"`
	Arch          string              `json:"arch"`
	Mesh          bool                `json:"mesh"`
	Command       string              `json:"command"`
	Library       string              `json:"library"`
	Release       string              `json:"release"`
	UID           int                 `json:"uid"`
	Container     string              `json:"container"`
	Pod           string              `json:"pod"`
	ContainerPID  int                 `json:"container_pid"`
	AttachedLate  bool                `json:"attached_late"`
	ExitStatus    *int                `json:"exit_status"`
	Count         uint64              `json:"count"`
	Cause         string              `json:"cause"`
	Stack         []Frame             `json:"stack"`
}

type capacity struct {
	Banks        uint32 `json:"banks"`
	BytesPerBank uint64 `json:"bytes_per_bank"`
	Base         uint64 `json:"base_address"`
}

// parse makes an event of one line.
func parse(line []byte) (Event, error) {
	var rec record
	err := json.Unmarshal(line, &rec)
	// First the version: a newer one may have other types in its fields.
	if rec.V != nil && *rec.V != Version {
		return Event{}, fmt.Errorf("the record has version %d, this ttmem reads version %d", *rec.V, Version)
	}
	if err != nil {
		return Event{}, err
	}
	if rec.V == nil {
		return Event{}, errors.New(`not an event record: it has no "v"`)
	}
	return rec.event()
}

func (rec *record) event() (Event, error) {
	e := Event{
		TimeNs: rec.TimeNs, PID: rec.PID, TID: rec.TID, Comm: rec.Comm,
		BufferID: rec.BufferID, Object: rec.Object, Allocator: rec.Allocator,
		Address: rec.Address, SizeBytes: rec.SizeBytes, PageSizeBytes: rec.PageSizeBytes,
		BytesPerBank: rec.BytesPerBank, Banks: rec.Banks,
		ProgramID: rec.ProgramID, Global: rec.Global, PerCore: rec.PerCore,
		Message: rec.Message, BeforeAttach: rec.BeforeAttach,
		Board: rec.Board, Arch: rec.Arch, Mesh: rec.Mesh,
		Command: rec.Command, Library: rec.Library, Release: rec.Release,
		UID: rec.UID, Container: rec.Container, Pod: rec.Pod, ContainerPID: rec.ContainerPID,
		AttachedLate: rec.AttachedLate, Count: rec.Count, Cause: rec.Cause,
	}
	if len(rec.Devices) > 0 {
		e.Devices = rec.Devices
	}
	if len(rec.Stack) > 0 {
		e.Stack = StackOf(rec.Stack)
	}
	if rec.Kind == "" {
		return Event{}, errors.New(`not an event record: it has no "kind"`)
	}
	var err error
	if e.Kind, err = named[Kind]("kind", kindNames[:Checkpoint], rec.Kind); err != nil {
		return Event{}, err
	}
	if e.Region, err = named[Region]("region", regionNames[:], rec.Region); err != nil {
		return Event{}, err
	}
	if e.Kind == ProcessExit {
		e.ExitStatus = UnknownStatus
		if rec.ExitStatus != nil {
			e.ExitStatus = *rec.ExitStatus
		}
	}
	switch e.Kind {
	case Alloc, Free, AllocFailed:
		if rec.Region == "" {
			return Event{}, fmt.Errorf("%s without a region", e.Kind)
		}
	}
	if e.Layout, err = named[Layout]("layout", layoutNames[:], rec.Layout); err != nil {
		return Event{}, err
	}
	if e.StaticKind, err = named[StaticKind]("static_kind", staticNames[:], rec.StaticKind); err != nil {
		return Event{}, err
	}
	if e.Reason, err = named[Reason]("reason", reasonNames[:], rec.Reason); err != nil {
		return Event{}, err
	}
	for _, c := range rec.Cores {
		if len(c) != 4 {
			return Event{}, fmt.Errorf("cores: a range has %d numbers in place of x0, y0, x1, y1", len(c))
		}
		e.Cores = append(e.Cores, CoreRange{c[0], c[1], c[2], c[3]})
	}
	for r := range e.Capacities {
		e.Capacities[r] = Capacity(rec.Capacities[Region(r).String()])
	}
	return e, nil
}

// named is the value whose name is s; the zero value where there is none.
func named[T ~uint8](field string, names []string, s string) (T, error) {
	if s == "" {
		return 0, nil
	}
	for i, n := range names {
		if n == s {
			return T(i), nil
		}
	}
	return 0, fmt.Errorf("unknown %s %q: a newer ttmem wrote it?", field, s)
}
