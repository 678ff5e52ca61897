package visualizer

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"ttmem/aggregate/memory"
	"ttmem/tracer/event"
)

// A node is one of a captured graph.
type node struct {
	Counter      int            `json:"counter"`
	ID           int            `json:"id"` // as Counter
	Type         string         `json:"node_type"`
	Params       map[string]any `json:"params"`
	Connections  []int          `json:"connections"`
	Arguments    []string       `json:"arguments"`
	InputTensors []int          `json:"input_tensors"`
	Level        int            `json:"stacking_level"`
}

// bufferNode is the allocation of a buffer, or its end. A buffer on several chips is one node, of
// its first chip: the pages add up the nodes of all chips. They divide the size by the number of
// cores, which makes it the size in each bank.
func bufferNode(kind string, e *event.Event) node {
	return node{Type: kind, Params: map[string]any{
		"address": e.Address, "size": e.BytesPerBank * uint64(e.Banks), "num_cores": e.Banks,
		"max_size_per_bank": e.BytesPerBank, "page_size": e.PageSizeBytes, "type": e.Region.String(),
		"buffer_type": e.Region, "layout": strings.ToUpper(e.Layout.String()), "device_id": first(e.Devices),
	}}
}

// first returns the first chip; nil if there is none.
func first(chips []int) any {
	if len(chips) == 0 {
		return nil
	}
	return chips[0]
}

// staticNode is a circular buffer on one chip. The pages know only the name of circular buffers,
// also for dataflow buffers and scratchpads, whose kind is a parameter of its own.
func staticNode(s *memory.Static) node {
	ranges := make([]string, 0, len(s.Cores))
	for _, c := range s.Cores {
		ranges = append(ranges, fmt.Sprintf("[%d-%d - %d-%d]", c.X0, c.Y0, c.X1, c.Y1))
	}
	global := "0"
	if s.Global {
		global = "1"
	}
	return node{Type: "circular_buffer_allocate", Params: map[string]any{
		"address": s.Address, "size": s.BytesPerCore, "core_range_set": "{" + strings.Join(ranges, ", ") + "}",
		"globally_allocated": global, "device_id": s.Device, "kind": s.Kind.String(), "program_id": s.ProgramID,
	}}
}

// graph returns the captured graph of an operation: a function with its allocations, and with the
// circular buffers of its programs.
func (op *operation) graph() string {
	call := map[string]any{"name": op.name}
	nodes := append([]node{{Type: "capture_start"}, {Type: "function_start", Params: call}}, op.nodes...)
	for _, id := range slices.Sorted(maps.Keys(op.statics)) {
		for i := range op.statics[id] {
			nodes = append(nodes, staticNode(&op.statics[id][i]))
		}
	}
	nodes = append(nodes, node{Type: "function_end", Params: call}, node{Type: "capture_end"})
	for i := range nodes {
		n := &nodes[i]
		n.Counter, n.ID, n.Arguments, n.InputTensors, n.Connections = i, i, []string{}, []int{}, []int{}
		if n.Params == nil {
			n.Params = map[string]any{}
		}
		switch i {
		case 0, len(nodes) - 2:
			n.Connections = []int{i + 1}
		case 1:
			for to := 2; to < len(nodes)-1; to++ {
				n.Connections = append(n.Connections, to)
			}
		}
		if i > 0 && i < len(nodes)-1 {
			n.Level = 1
		}
	}
	text, _ := event.MarshalJSON(nodes) // has no errors: only texts and numbers
	return string(text)
}
