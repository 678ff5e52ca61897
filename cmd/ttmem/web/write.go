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
	"ttmem/aggregate/export"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

// The page with placeholders, and the parts of its script.
var (
	//go:embed page.html
	pageHTML string
	//go:embed page.css
	pageCSS string
	//go:embed source.js
	sourceJS string
	//go:embed recording.js
	recordingJS string
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
	// Processes are pid, name and command line.
	Processes [][3]any `json:"processes"`
	// Groups are pid, device and region of sites that follow each other. All devices are in one
	// group.
	Groups [][3]any          `json:"groups"`
	Stacks export.StackData  `json:"stacks"`
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
	Runs    [][2]int                   `json:"runs"` // pid and text of the operations that ran programs
	Columns []column                   `json:"columns"`
	Docs    map[string]json.RawMessage `json:"documents"`
	// Live is true if the page is of now, and loads itself again.
	Live bool `json:"live"`
	// number is that of each call site on the page.
	number []uint32
}

// The fields of a site: the node of its stack, its group and set of chips, and numbers of texts.
const (
	siteNode = iota
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

// Write writes the page. s is the state at the end.
func (p *Page) Write(w io.Writer, s *aggregate.State, o Options) error {
	out := bufio.NewWriterSize(w, 1<<20)
	h := p.head(s, o)
	script := export.FlameScript + sourceJS + recordingJS + timelineJS + tablesJS + addressesJS + pageJS
	hash := sha256.Sum256([]byte(script))
	rest := pageHTML
	for _, part := range []struct {
		mark  string
		write func(w io.Writer) error
	}{
		{"{{hash}}", text(base64.StdEncoding.EncodeToString(hash[:]))},
		{"{{title}}", text(html.EscapeString(event.Printable(o.Of)))},
		{"{{style}}", text(export.FlameStyle + pageCSS)},
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
		Processes: [][3]any{}, Groups: [][3]any{}, Sites: [][siteFields]int{}, Sets: [][]int{}, Chips: []chip{}, Lines: []lineHead{}, Peaks: []peak{}, Runs: [][2]int{},
	}
	if h.Docs == nil {
		h.Docs = make(map[string]json.RawMessage)
	}
	for _, one := range s.Profile().Processes {
		h.Processes = append(h.Processes, [3]any{one.PID, event.Printable(one.Comm), event.Printable(one.Command)})
	}
	texts := newTexts()
	names := &alloc.Namer{Rules: o.Rules, Snap: snap}
	p.addSites(h, names, texts)
	for _, op := range p.runs.operations {
		row := alloc.Row{PID: op.PID, Devices: op.Devices, Region: event.CB, Site: names.Site(op.Stack)}
		h.Runs = append(h.Runs, [2]int{op.PID, texts.of(names.Title(&row, " · "))})
	}
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
	index := s.Index()
	for _, q := range s.RegionPeaks() {
		at := slices.IndexFunc(index.Peaks, func(x memory.PeakPoint) bool { return x.Device == q.Device && x.Region == q.Region })
		if at >= 0 && q.Bytes > 0 {
			h.Peaks = append(h.Peaks, peak{q.Device, q.Region.String(), p.rowOf(index.Peaks[at].Point), q.Bytes})
		}
	}
	return h
}

// addSites adds the call sites in order of their groups.
func (p *Page) addSites(h *head, names *alloc.Namer, texts *texts) {
	l := &p.lives
	order := make([]uint32, len(l.sites))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortStableFunc(order, func(a, b uint32) int {
		return cmp.Or(cmp.Compare(l.sites[a].PID, l.sites[b].PID), cmp.Compare(l.sites[a].Region, l.sites[b].Region))
	})
	stacks, sets, number := export.NewStacks(), make(map[string]int), make([]uint32, len(order))
	for i, at := range order {
		number[at] = uint32(i)
		site := &l.sites[at]
		if i == 0 || site.PID != l.sites[order[i-1]].PID || site.Region != l.sites[order[i-1]].Region {
			h.Groups = append(h.Groups, [3]any{site.PID, "", site.Region.String()})
		}
		key := memory.DevicesKey(site.Devices)
		if _, ok := sets[key]; !ok {
			sets[key] = len(h.Sets)
			h.Sets = append(h.Sets, append([]int{}, site.Devices...))
		}
		named := names.Site(site.Stack)
		row := alloc.Row{PID: site.PID, Devices: site.Devices, Region: site.Region, BeforeAttach: site.BeforeAttach, Site: named}
		kind, class := site.Layout.String(), row.Class().String()
		if site.Region == event.CB || site.Region == event.Kernel {
			kind = site.Static.String()
			class = strings.ReplaceAll(kind, "_", " ")
		}
		var of [siteFields]int
		of[siteNode], of[siteGroup], of[siteSet] = int(stacks.Add(site.Stack)), len(h.Groups)-1, sets[key]
		of[siteName], of[siteOp] = texts.of(names.Title(&row, " · ")), texts.of(named.Name.Op)
		of[siteComponent], of[siteKind] = texts.of(named.Component), texts.of(kind)
		of[siteClass] = texts.of(class)
		of[siteCallers] = texts.of(strings.Join(named.Callers, " ← "))
		h.Sites = append(h.Sites, of)
	}
	h.Stacks, h.number = stacks.Data(), number
}

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
	site := make([]uint32, len(l.site))
	for i, of := range l.site {
		site[i] = h.number[of]
	}
	c.narrow("site", site, false)
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
