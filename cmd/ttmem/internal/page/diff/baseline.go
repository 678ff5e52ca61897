package diff

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/tracer/event"
)

// A Baseline is a side as a small file, which is compared with later recordings: its unfreed memory and its peaks.
// It has no processes.
type Baseline struct{ Left, Peaks analyze.Parts }

type baselineFile struct {
	V     int            `json:"v"`
	Kind  string         `json:"kind"`
	Left  []baselinePart `json:"left"`
	Peaks []baselinePart `json:"peaks"`
}

const baselineKind = "ttmem diff --baseline"

type baselinePart struct {
	Region       string        `json:"region"`
	Devices      []int         `json:"devices"`
	Layout       string        `json:"layout"`
	Static       string        `json:"static,omitempty"`
	BeforeAttach bool          `json:"before_attach,omitempty"`
	Owner        string        `json:"owner,omitempty"`
	Buffers      uint64        `json:"buffers"`
	Bytes        uint64        `json:"bytes"`
	Stack        []event.Frame `json:"stack,omitempty"`
}

// Write writes the file. Equal sides are equal files, except for the folders of the program.
func (b *Baseline) Write(w io.Writer) error {
	doc, err := event.MarshalJSON(&baselineFile{1, baselineKind, partsOf(&b.Left), partsOf(&b.Peaks)})
	if err != nil {
		return err
	}
	lines, err := json.MarshalIndent(json.RawMessage(doc), "", " ")
	if err == nil {
		_, err = w.Write(append(lines, '\n'))
	}
	return err
}

func partsOf(p *analyze.Parts) []baselinePart {
	list := []baselinePart{}
	for i := range p.List {
		one := &p.List[i]
		list = append(list, baselinePart{
			Region: one.Region.String(), Devices: one.Devices, Layout: one.Layout.String(), BeforeAttach: one.BeforeAttach,
			Owner: one.Owner, Buffers: one.Count, Bytes: one.Bytes, Stack: shortened(one.Stack.Frames()), Static: one.Static.String(),
		})
	}
	slices.SortStableFunc(list, func(a, b baselinePart) int {
		return cmp.Or(cmp.Compare(a.Region, b.Region), slices.Compare(a.Devices, b.Devices), slices.CompareFunc(a.Stack, b.Stack, func(a, b event.Frame) int {
			return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
		}), cmp.Compare(a.Owner, b.Owner), cmp.Compare(b.Bytes, a.Bytes))
	})
	return list
}

// shortened returns the frames without those of libraries, if these name the same allocation.
func shortened(frames []event.Frame) []event.Frame {
	folded := name.Fold(frames)
	if name.Of(folded) == name.Of(frames) && slices.Equal(name.UserCalls(folded), name.UserCalls(frames)) {
		return folded
	}
	return frames
}

// mostBaseline is the largest file of a baseline, in bytes.
const mostBaseline = 256 << 20

// ReadBaseline reads a file that Write wrote.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	var doc baselineFile
	if err := json.NewDecoder(io.LimitReader(r, mostBaseline)).Decode(&doc); err != nil {
		return nil, fmt.Errorf("no JSON: %w", err)
	}
	if doc.Kind != baselineKind || doc.V != 1 {
		return nil, fmt.Errorf("no baseline of this version")
	}
	b := &Baseline{}
	for list, parts := range map[*analyze.Parts][]baselinePart{&b.Left: doc.Left, &b.Peaks: doc.Peaks} {
		for i := range parts {
			part, err := parts[i].part()
			if err != nil {
				return nil, err
			}
			list.List = append(list.List, *part)
		}
	}
	return b, nil
}

func (p *baselinePart) part() (*analyze.Part, error) {
	one := &analyze.Part{Owner: p.Owner, SiteAmount: memory.SiteAmount{Amount: memory.Amount{Count: p.Buffers, Bytes: p.Bytes}}}
	one.Devices, one.BeforeAttach = p.Devices, p.BeforeAttach
	if len(p.Stack) > 0 {
		one.Stack = event.StackOf(p.Stack)
	}
	var known [3]bool
	one.Region, known[0] = valueOf[event.Region](p.Region)
	one.Layout, known[1] = valueOf[event.Layout](p.Layout)
	one.Static, known[2] = valueOf[event.StaticKind](p.Static)
	if known != [3]bool{true, true, true} || one.Region >= event.NumRegions {
		return nil, fmt.Errorf("a part in region %q with layout %q and kind %q, which this ttmem does not know", p.Region, p.Layout, p.Static)
	}
	return one, nil
}

// valueOf returns the value with a name.
func valueOf[T interface {
	~uint8
	String() string
}](text string) (value T, ok bool) {
	for v := range T(32) {
		if v.String() == text {
			return v, true
		}
	}
	return 0, false
}
