package web

import (
	"bufio"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"slices"
	"strings"

	"github.com/klauspost/compress/gzip"

	"ttmem/aggregate"
	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/tracer/event"
)

// The page with placeholders, and the parts of its script.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed flametext.js
	flameTextJS string
	//go:embed flamemodel.js
	flameModelJS string
	//go:embed flamelayout.js
	flameLayoutJS string
	//go:embed flamestate.js
	flameStateJS string
	//go:embed flameview.js
	flameViewJS string
	//go:embed source.js
	sourceJS string
	//go:embed recording.js
	recordingJS string
	//go:embed areas.js
	areasJS string
	//go:embed timeline.js
	timelineJS string
	//go:embed tables.js
	tablesJS string
	//go:embed addresses.js
	addressesJS string
	//go:embed page.js
	pageJS string
)

// Options are what a page shows beside the events.
type Options struct {
	// Of names the recording.
	Of    string
	Clock page.Clock
	// Rules name components.
	Rules *name.Rules
	Notes []string
	// Documents are the JSON documents of the whole recording, by their commands.
	Documents map[string]json.RawMessage
	// Live makes a page that loads itself again: its events go on.
	Live bool
}

// head is the part of the page's data that is not in columns.
type head struct {
	Of    string   `json:"of"`
	Notes []string `json:"notes"`
	// FirstNs is the time of row 0, and Begun the same by the wall clock; 0 if not known.
	FirstNs uint64 `json:"first_ns"`
	BegunNs int64  `json:"begun_ns"`
	// Processes are pid, name, command line and memory on the host, which is "" if that is not known.
	Processes [][4]any `json:"processes"`
	// Groups are pid, device and region of sites that follow each other. All devices are in one
	// group.
	Groups [][3]any          `json:"groups"`
	Stacks stackData         `json:"stacks"`
	Texts  []string          `json:"texts"`
	Sites  [][siteFields]int `json:"sites"`
	// Owners are numbers of texts: the path, the path without indices, the tensor, and the class of the
	// buffers of call sites that do not tell it.
	Owners [][4]int `json:"owners"`
	// Sets are the chips that sites are on.
	Sets    [][]int                    `json:"sets"`
	Chips   []chip                     `json:"chips"`
	Lines   []lineHead                 `json:"lines"`
	Marks   []mark                     `json:"marks"`
	Peaks   []peak                     `json:"peaks"`
	Story   *story                     `json:"story"` // null for none, and for a page of now
	Runs    [][3]int                   `json:"runs"`  // pid, text and site of the operations that ran programs
	Columns []column                   `json:"columns"`
	Docs    map[string]json.RawMessage `json:"documents"`
	// Live is true if the page is of now, and loads itself again.
	Live bool `json:"live"`
	// siteOf is the call site of each life.
	siteOf []uint32
}

// The fields of a site: the nodes of its stack, folded and whole, its group and set of chips, and numbers of
// texts.
const (
	siteNode = iota
	siteWhole
	siteGroup
	siteSet
	siteName
	siteOp
	siteComponent
	siteKind
	siteCallers
	siteClass
	siteFields
)

// chip is a chip with its regions, whose memory was last known.
type chip struct {
	ID      int              `json:"id"`
	Regions map[string]space `json:"regions"`
}

type space struct {
	Start   uint64 `json:"start"`
	PerBank uint64 `json:"bytes_per_bank"`
	Banks   uint32 `json:"banks"`
}

// lineHead describes a line; its columns have its number.
type lineHead struct {
	Region  string `json:"region"`
	Devices []int  `json:"devices"`
	// CapacityBytes is of what the line shows: of each core's L1, or of all banks.
	CapacityBytes uint64 `json:"capacity_bytes"`
}

// peak is the peak of a region of a chip.
type peak struct {
	Device int    `json:"device"`
	Region string `json:"region"`
	Row    uint32 `json:"row"`
	Bytes  uint64 `json:"bytes"`
}

// story is the moment that the page opens at.
type story struct {
	Kind   analyze.StoryKind `json:"kind"`
	Row    uint32            `json:"row"`
	Region string            `json:"region"`
	Chips  []int             `json:"chips"`
}

// Write writes the page. s is the state at the end.
func (p *Page) Write(w io.Writer, s *aggregate.State, o Options) error {
	out := bufio.NewWriterSize(w, 1<<20)
	h := p.head(s, o)
	script := flameTextJS + flameModelJS + flameLayoutJS + flameStateJS + flameViewJS + sourceJS + recordingJS + areasJS + timelineJS + tablesJS + addressesJS + pageJS
	hash := sha256.Sum256([]byte(script))
	rest := pageHTML
	for _, part := range []struct {
		mark  string
		write func(w io.Writer) error
	}{
		{"{{hash}}", text(base64.StdEncoding.EncodeToString(hash[:]))},
		{"{{title}}", text(html.EscapeString(event.Printable(o.Of)))},
		{"{{style}}", text(pageCSS)},
		{"{{columns}}", compressed(func(w io.Writer) error { return p.writeColumns(w, h) })},
		{"{{head}}", compressed(func(w io.Writer) error { return writeJSON(w, h) })},
		{"{{script}}", text(script)},
	} {
		before, after, ok := strings.Cut(rest, part.mark)
		if !ok {
			return fmt.Errorf("the page has no %s", part.mark)
		}
		out.WriteString(before)
		if err := part.write(out); err != nil {
			return err
		}
		rest = after
	}
	out.WriteString(rest)
	return out.Flush()
}

func text(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

// compressed writes in base64, which cannot close an HTML element.
func compressed(write func(io.Writer) error) func(io.Writer) error {
	return func(w io.Writer) error {
		encoder := base64.NewEncoder(base64.StdEncoding, w)
		zip := gzip.NewWriter(encoder)
		return errors.Join(write(zip), zip.Close(), encoder.Close())
	}
}

func writeJSON(w io.Writer, value any) error {
	text, err := event.MarshalJSON(value)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// head returns the head without the columns. It orders the sites.
func (p *Page) head(s *aggregate.State, o Options) *head {
	if len(p.timeNs) == 0 {
		p.addRow(0, 0)
	}
	snap := s.Snapshot()
	p.followRuns(uint32(len(p.timeNs)))
	h := &head{
		Of: event.Printable(o.Of), Notes: o.Notes, FirstNs: p.timeNs[0], BegunNs: o.Clock.Wall(p.timeNs[0]), Marks: append([]mark{}, p.marks...), Docs: o.Documents, Live: o.Live,
		Processes: [][4]any{}, Groups: [][3]any{}, Sites: [][siteFields]int{}, Sets: [][]int{}, Chips: []chip{}, Lines: []lineHead{}, Peaks: []peak{}, Runs: [][3]int{},
	}
	if h.Docs == nil {
		h.Docs = make(map[string]json.RawMessage)
	}
	names := &alloc.Namer{Rules: o.Rules, Snap: snap}
	for _, one := range s.Profile().Processes {
		h.Processes = append(h.Processes, [4]any{one.PID, event.Printable(one.Comm), event.Printable(one.Command), page.HostMemory(names.Host(one.PID))})
	}
	texts := newTexts()
	p.addSites(h, names, texts)
	for _, o := range p.lives.owners {
		class := name.ClassByOwner(o.Path, o.Tensor).String()
		h.Owners = append(h.Owners, [4]int{texts.of(o.Path), texts.of(name.FoldOwner(o.Path)), texts.of(o.Tensor), texts.of(class)})
	}
	h.Texts = texts.list
	for _, d := range snap.Devices {
		one := chip{d.ID, make(map[string]space)}
		for region, c := range p.spaces[d.ID] {
			one.Regions[event.Region(region).String()] = space{c.Base, c.BytesPerBank, c.Banks}
		}
		h.Chips = append(h.Chips, one)
	}
	for _, q := range s.Index().Peaks {
		h.Peaks = append(h.Peaks, peak{q.Device, q.Region.String(), p.rowOf(q.Point), q.Bytes})
	}
	if o.Live {
		return h
	}
	if of := analyze.StoryOf(s, memory.Point{Number: p.number[0], TimeNs: p.timeNs[0]}); of.Kind != "" {
		h.Story = &story{of.Kind, p.rowOf(of.Point), of.Region, of.Devices}
	}
	return h
}

// addSites adds the call sites in order of their groups, and then those of programs that ran. Memory without a
// call stack has one for each owner.
func (p *Page) addSites(h *head, names *alloc.Namer, texts *texts) {
	type owned struct{ site, owner uint32 } // the number of a path, if the stack is not known
	index, order, siteOf := make(map[owned]uint32), []owned{}, make([]uint32, len(p.lives.site))
	for i, of := range p.lives.site {
		key := owned{site: of}
		if p.lives.sites[of].Stack == nil {
			key.owner = uint32(texts.of(name.FoldOwner(p.lives.owners[p.lives.owner[i]].Path)))
		}
		if _, ok := index[key]; !ok {
			index[key] = uint32(len(order))
			order = append(order, key)
		}
		siteOf[i] = index[key]
	}
	site := func(key owned) *memory.Site { return &p.lives.sites[key.site] }
	sorted := slices.Clone(order)
	slices.SortStableFunc(sorted, func(a, b owned) int {
		return cmp.Or(cmp.Compare(site(a).PID, site(b).PID), cmp.Compare(site(a).Region, site(b).Region))
	})
	tree, sets := newStacks(), make(map[string]int)
	add := func(pid int, region event.Region, devices []int, stack *event.Stack) (of [siteFields]int, named *alloc.Site) {
		if n := len(h.Groups); n == 0 || h.Groups[n-1] != [3]any{pid, "", region.String()} {
			h.Groups = append(h.Groups, [3]any{pid, "", region.String()})
		}
		key := memory.DevicesKey(devices)
		if _, ok := sets[key]; !ok {
			sets[key] = len(h.Sets)
			h.Sets = append(h.Sets, append([]int{}, devices...))
		}
		named = names.Site(stack)
		ends := tree.add(stack)
		of[siteNode], of[siteWhole], of[siteGroup], of[siteSet] = int(ends.folded), int(ends.whole), len(h.Groups)-1, sets[key]
		of[siteOp], of[siteComponent] = texts.of(named.Name.Op), texts.of(named.Component)
		of[siteCallers] = texts.of(strings.Join(named.Callers, " ← "))
		return of, named
	}
	for i, key := range sorted {
		index[key] = uint32(i)
		s := site(key)
		of, named := add(s.PID, s.Region, s.Devices, s.Stack)
		row := alloc.Row{PID: s.PID, Devices: s.Devices, Region: s.Region, BeforeAttach: s.BeforeAttach, Site: named}
		kind, class := s.Layout.String(), row.Class().String()
		if s.Region == event.CB || s.Region == event.Kernel {
			kind = s.Static.String()
			class = strings.ReplaceAll(kind, "_", " ")
		}
		of[siteName], of[siteKind], of[siteClass] = texts.of(names.Title(&row, " · ")), texts.of(kind), texts.of(class)
		if path := texts.list[key.owner]; path != "" {
			of[siteName] = int(key.owner)
			of[siteNode] = int(tree.below(0, path))
			of[siteWhole] = of[siteNode]
		}
		h.Sites = append(h.Sites, of)
	}
	for i, of := range siteOf {
		siteOf[i] = index[order[of]]
	}
	for _, op := range p.runs.operations {
		of, named := add(op.PID, event.L1, op.Devices, op.Stack)
		row := alloc.Row{PID: op.PID, Devices: op.Devices, Region: event.CB, Site: named}
		title := names.Title(&row, " · ")
		of[siteName], of[siteKind], of[siteClass] = texts.of(title), texts.of(running), texts.of("circular buffer")
		of[siteNode], of[siteWhole] = int(tree.below(int32(of[siteNode]), running)), int(tree.below(int32(of[siteWhole]), running))
		h.Runs = append(h.Runs, [3]int{op.PID, texts.of(title), len(h.Sites)})
		h.Sites = append(h.Sites, of)
	}
	h.Stacks, h.siteOf = tree.data(), siteOf
}

// running is the kind of memory that a program has while it runs.
const running = "circular buffers"

// writeColumns writes the columns, and describes them in the head.
func (p *Page) writeColumns(w io.Writer, h *head) error {
	c := &columns{out: w}
	l := &p.lives
	since := make([]uint64, len(p.timeNs)) // a browser's numbers have 53 bits
	for i, ns := range p.timeNs {
		since[i] = ns - p.timeNs[0]
	}
	c.wide("time", since, true)
	c.narrow("born", l.born, true)
	lived := make([]uint32, len(l.born))
	for i := range lived {
		if l.died[i] != never { // what lives on has 0
			lived[i] = l.died[i] - l.born[i]
		}
	}
	c.narrow("lived", lived, false)
	c.narrow("site", h.siteOf, false)
	c.wide("perBank", l.perBank, false)
	c.narrow("banks", l.banks, false)
	c.wide("address", l.address, false)
	c.wide("id", l.id, true)
	c.narrow("owner", l.owner, false)
	c.narrow("failures", p.failures, true)
	c.narrow("runRow", p.runs.row, true)
	c.narrow("runOf", p.runs.of, false)
	c.narrow("runCount", p.runs.count, false)
	for region := range p.lines {
		list := p.lines[region].list
		slices.SortFunc(list, func(a, b *line) int {
			return slices.Compare(slices.Sorted(slices.Values(a.devices)), slices.Sorted(slices.Values(b.devices)))
		})
		for _, one := range list {
			if len(one.row) == 0 {
				continue
			}
			slices.Sort(one.devices)
			of := lineHead{Region: event.Region(region).String(), Devices: one.devices}
			space := p.spaces[one.devices[0]][region]
			if of.CapacityBytes = space.Total(); event.Region(region) == event.L1 {
				of.CapacityBytes = space.BytesPerBank
			}
			n := len(h.Lines)
			h.Lines = append(h.Lines, of)
			c.narrow(fmt.Sprintf("line%d.row", n), one.row, true)
			c.wide(fmt.Sprintf("line%d.bytes", n), one.bytes, false)
			if event.Region(region) == event.L1 {
				c.wide(fmt.Sprintf("line%d.static", n), one.static, false)
				c.narrow(fmt.Sprintf("line%d.by", n), one.by, false)
			}
		}
	}
	h.Columns = c.list
	return c.err
}

// texts are different texts, each once.
type texts struct {
	list  []string
	index map[string]int
}

func newTexts() *texts { return &texts{[]string{""}, map[string]int{"": 0}} }

func (t *texts) of(s string) int {
	i, ok := t.index[s]
	if !ok {
		i = len(t.list)
		t.index[s] = i
		t.list = append(t.list, event.Printable(s))
	}
	return i
}
