package main

import (
	"ttmem/cmd/ttmem/internal/page/leaks"
	"ttmem/tracer/event"
)

// rowJSON is a row of any JSON document, as far as tests read it.
type rowJSON struct {
	Key          string  `json:"key"`
	Name         string  `json:"name"`
	Op           string  `json:"op"`
	PID          int     `json:"pid"`
	Devices      []int   `json:"devices"`
	Device       int     `json:"device"`
	Region       string  `json:"region"`
	Address      uint64  `json:"address"`
	SinceNs      uint64  `json:"since_ns"`
	AgeNs        *uint64 `json:"age_ns"`
	BeforeAttach bool    `json:"before_attach"`
	Global       bool    `json:"global"`
	Owner        string  `json:"owner"`
	Tensor       string  `json:"tensor"`
	Class        string  `json:"class"`

	BytesPerBank   uint64      `json:"bytes_per_bank"`
	AllocatedBytes uint64      `json:"allocated_bytes"`
	BytesPerCore   uint64      `json:"bytes_per_core"`
	Cores          [][4]uint16 `json:"cores"`

	Verdict, Kind, Why string
	GrowthBytes        []uint64      `json:"growth_bytes"`
	Count              uint64        `json:"count"`
	Bytes              uint64        `json:"bytes"`
	Buffers            uint64        `json:"buffers"`
	A                  amountJSON    `json:"a"`
	B                  amountJSON    `json:"b"`
	ChangeBuffers      int64         `json:"change_buffers"`
	ChangeBytes        int64         `json:"change_bytes"`
	ALine              int           `json:"a_line"`
	Stack              []event.Frame `json:"stack"`
}

type amountJSON struct{ Buffers, Bytes uint64 }

// leaksDocument is what `ttmem leaks --json` prints.
type leaksDocument struct {
	leaks.Document
	Leaks     []rowJSON `json:"leaks"`
	Undecided []rowJSON `json:"undecided"`
	Left      []rowJSON `json:"left"`
	Kept      []rowJSON `json:"kept"`
	Groups    []rowJSON `json:"groups"`
}

// peakDocument is what `ttmem peak --json` prints.
type peakDocument struct {
	BeginNs uint64 `json:"begin_ns"`
	Peaks   []struct {
		rowJSON
		TimeNs       uint64    `json:"time_ns"`
		StaticBytes  uint64    `json:"static_bytes"`
		Groups       []rowJSON `json:"groups"`
		StaticGroups []rowJSON `json:"static_groups"`
		Holders      []rowJSON `json:"holders"`
		Programs     []rowJSON `json:"programs"`
	} `json:"peaks"`
	Omitted int
	Notes   []string
}
