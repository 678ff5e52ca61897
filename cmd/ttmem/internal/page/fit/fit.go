// Package fit shows how the allocations of a program grow with a parameter, and the largest value of it that fits.
package fit

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"math"
	"strings"

	"ttmem/aggregate/name"
	"ttmem/aggregate/replay"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/oom"
	"ttmem/tracer/event"
)

// A Page is the growth of a program over its recordings.
type Page struct {
	Files  []File
	Growth *replay.Growth
	// On is the values of --on: the board to fit on; none for the recorded one.
	On []string
	// Limit is the maximum number of call sites to list; 0: all.
	Limit int
	Notes []string

	// largest is the largest value that fits. fails is the program with failsAt, the smallest value that was replayed and
	// does not; nil if all fit. doubt says why neither is known.
	largest, failsAt int
	fails            *replay.WhatIf
	doubt            string
}

// A File is a recording with its value of the parameter.
type File struct {
	Path  string
	Value int
	// Failures is the number of its failed allocations.
	Failures uint64
	Play     func(handle func(*event.Event)) error
}

const (
	// MostValue is the largest value that is tried, and mostTried how many are replayed at once, unless they make more than
	// mostWork allocations together.
	MostValue, mostTried, mostWork = 1 << 24, 16, 2 << 20
)

// base is the index of the recording with the largest value, which is replayed with others.
func (p *Page) base() (largest int) {
	for i := range p.Files {
		if p.Files[i].Value > p.Files[largest].Value {
			largest = i
		}
	}
	return largest
}

// Read reads all recordings, and searches the largest value that fits.
func (p *Page) Read() error {
	var values []float64
	for i := range p.Files {
		values = append(values, float64(p.Files[i].Value))
	}
	p.Growth = replay.NewGrowth(values)
	allocations := 0
	for i := range p.Files {
		f, take := &p.Files[i], p.Growth.Of(i)
		allocations = 0
		if err := f.Play(func(e *event.Event) {
			if e.Kind == event.AllocFailed {
				f.Failures++
			}
			if e.Kind == event.Alloc {
				allocations++
			}
			take(e)
		}); err != nil {
			return err
		}
		if f.Failures > 0 {
			return fmt.Errorf("%s has failed allocations: fit needs runs that worked", f.Path)
		}
	}
	most := min(max(mostWork/(allocations+1), 1), mostTried)
	low, high := p.Files[p.base()].Value, 0
	for {
		var tried []int
		for i := range most {
			value := low << (i + 1)
			if high > 0 {
				value = low + (high-low)*(i+1)/(most+1)
			}
			if value > low && (high == 0 || value < high) && value <= MostValue && (len(tried) == 0 || value > tried[len(tried)-1]) {
				tried = append(tried, value)
			}
		}
		if len(tried) == 0 && high-low > 1 {
			tried = []int{(low + high) / 2}
		}
		if p.largest = low; len(tried) == 0 {
			return nil
		}
		n, err := p.try(tried)
		if err != nil || p.doubt != "" {
			return err
		}
		if n < len(tried) {
			high = tried[n]
		}
		if n > 0 {
			low = tried[n-1]
		}
	}
}

// try replays values, and returns how many of them fit.
func (p *Page) try(values []int) (fit int, err error) {
	var whatIfs []*replay.WhatIf
	for _, value := range values {
		with, err := oom.NewWhatIf(map[string][]string{"on": p.On})
		if err != nil {
			return 0, err
		}
		w := &replay.WhatIf{Changes: []replay.Change{p.Growth.Grow(p.base(), float64(value))}}
		if with != nil {
			w.Changes = append(w.Changes, with.Changes...)
		}
		whatIfs = append(whatIfs, w)
	}
	r := replay.New(whatIfs...)
	if err := r.Play(p.Files[p.base()].Play); err != nil {
		return 0, err
	}
	for i, w := range whatIfs {
		v := r.Whole(i)
		if v.Doubt != "" {
			p.doubt = v.Doubt
			return i, nil
		}
		if !v.Fits {
			p.failsAt, p.fails = values[i], w
			return i, nil
		}
	}
	return len(values), nil
}

// verdict is the answer in one sentence.
func (p *Page) verdict() string {
	on := ""
	if len(p.On) > 0 {
		on = " on " + p.On[len(p.On)-1]
	}
	switch {
	case p.doubt != "":
		return "The largest value that fits" + on + " is not known: " + p.doubt + "."
	case p.fails == nil:
		return fmt.Sprintf("All values up to %d fit%s, by extrapolation.", p.largest, on)
	case p.largest == p.Files[p.base()].Value:
		return fmt.Sprintf("No larger value than %d fits%s, by extrapolation.", p.largest, on)
	}
	return fmt.Sprintf("The largest value that fits%s is %d, by extrapolation.", on, p.largest)
}

// assumption says what is extrapolated.
const assumption = "Each allocation is assumed to grow linearly, and circular buffers not at all."

// WriteText writes the page.
func (p *Page) WriteText(w io.Writer, layout page.Layout) error {
	out := bufio.NewWriter(w)
	layout.Write(out, 0, page.Bold, p.verdict())
	if p.fails != nil {
		layout.Write(out, 1, page.NoStyle, fmt.Sprintf("With %d, %s is too small first at:", p.failsAt, p.failsIn()))
		layout.Write(out, 1, page.Green, siteName(layout, p.fails.FirstFailed))
		layout.WriteCallers(out, 3, page.Callers(p.fails.FirstFailed.Frames()))
	}
	var files []string
	for i := range p.Files {
		files = append(files, fmt.Sprintf("%s: %d", page.Clean(p.Files[i].Path), p.Files[i].Value))
	}
	layout.Write(out, 0, page.Dim, strings.Join(files, ", ")+". "+assumption)
	fmt.Fprintln(out)
	sites := p.Growth.Sites()
	shown, omitted := page.First(sites, p.Limit)
	columns := page.Columns{11, 11, -10}
	layout.WriteHead(out, columns.Line("fixed", "for each 1", "  region"), "allocated by")
	for _, s := range shown {
		fixed, grows := s.Line()
		title := siteName(layout, s.Stack)
		if !s.IsLinear() {
			title += " (not linear)"
		}
		layout.Beside(out, columns.Line(bytes(fixed), bytes(grows), "  "+s.Region.String()), page.Green, title)
	}
	if omitted > 0 {
		layout.Write(out, 0, page.NoStyle, fmt.Sprintf("and %s: -n 0 shows all", page.Count(uint64(omitted), "other call site")))
	}
	return out.Flush()
}

// failsIn is the region in which the first failure is.
func (p *Page) failsIn() string {
	if p.fails.FirstRegion == event.CB {
		return "L1 beside circular buffers"
	}
	return p.fails.FirstRegion.String()
}

func siteName(layout page.Layout, stack *event.Stack) string {
	return cmp.Or(page.Clean(name.Of(stack.Frames()).Text(layout.Separator())), "(no call stack)")
}

func bytes(n float64) string {
	if n < -0.5 {
		return "-" + page.Bytes(uint64(math.Round(-n)))
	}
	return page.Bytes(uint64(math.Round(max(n, 0))))
}

// Document is the output of `ttmem fit --json`. All of it is extrapolated from the files.
//
//schema:fit
type Document struct {
	V     int    `json:"v"`
	Files []file `json:"files"`
	// Board is that of --on.
	Board string `json:"board,omitempty"`
	// Largest is the largest value of the parameter that fits, and Fails the smallest that was found not to, where it fails
	// first. Without Fails, larger values may fit. Reason says why neither is known.
	Largest int      `json:"largest,omitempty"`
	Fails   *failure `json:"fails,omitempty"`
	Reason  string   `json:"reason,omitempty"`
	// Sites are the call sites, the fastest growing first. Omitted is the number that -n leaves out.
	Sites   []site   `json:"sites"`
	Omitted int      `json:"omitted"`
	Notes   []string `json:"notes,omitempty"`
}

// file is a recording with its value of the parameter.
//
//schema:fit_file
type file struct {
	File  string `json:"file"`
	Value int    `json:"value"`
}

// failure is where a value fails first.
//
//schema:fit_failure
type failure struct {
	Value  int          `json:"value"`
	Region string       `json:"region" schema:"region"`
	Name   string       `json:"name"`
	Stack  *event.Stack `json:"stack,omitempty"`
}

// site is a call site: the bytes that are live at most are FixedBytes and BytesForEach of the parameter. PeakBytes are those
// of the files, and Linear is false if the line is not within a hundredth of them.
//
//schema:fit_site
type site struct {
	Region       string       `json:"region" schema:"region"`
	FixedBytes   float64      `json:"fixed_bytes"`
	BytesForEach float64      `json:"bytes_for_each"`
	PeakBytes    []float64    `json:"peak_bytes"`
	Linear       bool         `json:"linear"`
	Name         string       `json:"name"`
	Stack        *event.Stack `json:"stack,omitempty"`
}

// Document returns the JSON document.
func (p *Page) Document() any {
	doc := Document{V: 1, Files: []file{}, Sites: []site{}, Reason: p.doubt, Notes: p.Notes}
	for i := range p.Files {
		doc.Files = append(doc.Files, file{p.Files[i].Path, p.Files[i].Value})
	}
	if len(p.On) > 0 {
		doc.Board = p.On[len(p.On)-1]
	}
	if p.doubt == "" {
		doc.Largest = p.largest
	}
	if w := p.fails; w != nil && p.doubt == "" {
		doc.Fails = &failure{p.failsAt, w.FirstRegion.String(), name.Of(w.FirstFailed.Frames()).String(), w.FirstFailed}
	}
	shown, omitted := page.First(p.Growth.Sites(), p.Limit)
	doc.Omitted = omitted
	for _, s := range shown {
		fixed, grows := s.Line()
		doc.Sites = append(doc.Sites, site{
			s.Region.String(), fixed, grows, s.Peak, s.IsLinear(), name.Of(s.Stack.Frames()).String(), s.Stack,
		})
	}
	return doc
}
