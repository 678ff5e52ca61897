package report

import (
	"cmp"
	"slices"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/page"
	"ttmem/cmd/ttmem/page/alloc"
	"ttmem/tracer/event"
)

const (
	// leastName is the minimum width of the name of a place.
	leastName = 36
	// belowColumns is the indent of a name on its own line.
	belowColumns = 14
)

// A source is a place that allocated memory.
type source struct {
	memory.Amount
	alloc.Look
	beforeAttach bool
	// kind is the kind of memory that a program places in L1; NotStatic for buffers.
	kind event.StaticKind
	// region is "" if it needs no mention.
	region string
	// held is true if the holder is in place of a call stack that is not known.
	held    bool
	holders alloc.Holders
}

// nouns name the kinds of memory.
var nouns = map[event.StaticKind]string{
	event.NotStatic: "buffer", event.CircularBuffer: "CB", event.DataflowBuffer: "DFB", event.Scratchpad: "scratchpad",
}

// newSources names a call site, and who holds its buffers as far as that is known.
func newSources(s *memory.Site, a memory.Amount, region string, holders []analyze.Holder) (list []*source) {
	names := alloc.Namer{}
	row := alloc.RowOf(s)
	row.Site = names.NewSite(s.Stack)
	for _, part := range alloc.Split(row, a, holders, "") {
		list = append(list, &source{
			Amount: part.Amount, Look: names.Look(&part.Row, s.Static, region), beforeAttach: s.BeforeAttach, kind: s.Static, region: region,
			held: part.Owner.Path != "", holders: part.Holders,
		})
	}
	return list
}

// folded adds up sources that look alike and, with lines, those of one line; the largest first.
func folded(all []*source, lines bool) []*source {
	list := alloc.Fold(all, lines)
	slices.SortStableFunc(list, func(a, b *source) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(b.Count, a.Count), cmp.Compare(a.Text, b.Text), slices.Compare(a.Callers, b.Callers))
	})
	return list
}

// Add adds the memory of another source.
func (s *source) Add(other *source) {
	s.Amount.Add(other.Amount)
	s.holders.Add(other.holders)
}

// noun is what one of its buffers is called.
func (s *source) noun() string {
	if s.Class == nil {
		return nouns[s.kind]
	}
	return s.Class.Noun
}

// sources writes the largest sources, with their share of the bytes in of (0 if unknown), and the
// sum of the others.
func (r *report) sources(list []*source, limit int, of uint64, format func(uint64) string) {
	columns := page.Columns{12, 5, 13}
	if of == 0 {
		columns[1] = 0
	}
	shown := len(list)
	// A single further place takes no more room than its summary.
	if shown > limit+1 {
		shown = limit
	}
	for _, s := range list[:shown] {
		columns[2] = max(columns[2], len("  ")+page.Width(page.Count(s.Count, s.noun())))
	}
	alloc.Distinguish(list[:shown])
	regionColumns := 0
	for _, s := range list[:shown] {
		if s.region != "" {
			regionColumns = max(regionColumns, page.Width(s.region)+2)
		}
	}
	var others memory.Amount
	sites := uint64(0)
	for i, s := range list {
		if i >= shown {
			others.Add(s.Amount)
			sites += uint64(max(1, s.Sites))
			continue
		}
		count := ""
		if s.Count > 0 {
			count = page.Count(s.Count, s.noun())
		}
		figures := columns.Line(format(s.Bytes), page.Percent(s.Bytes, of), count) + "  "
		r.source(s, figures+page.Left(s.region, regionColumns)[:regionColumns])
	}
	if sites > 0 {
		figures := columns.Line(format(others.Bytes), page.Percent(others.Bytes, of), page.Count(others.Count, "buffer"))
		r.line(r.Paint(page.Dim, figures+"  "+page.Count(sites, "other call site")))
	}
}

// source writes the place of a source beside its figures, or below them if there is no room:
// first the line, then the caller, and then the operation and who holds the buffers if they fit.
func (r *report) source(s *source, figures string) {
	line, caller, op := page.Clean(s.Name.Call.String()), s.Caller, page.Clean(s.Name.Op)
	if line == "" {
		line, op = strings.TrimPrefix(s.Text, s.Class.Mention()+" · "), "" // the noun has the class
	}
	if op != "" {
		op = r.Separator() + op
	}
	columns := r.width - page.Width(figures)
	if columns < min(leastName, page.Width(r.calls(line, caller)+op)) && !r.whole {
		r.line(r.Paint(page.Dim, strings.TrimRight(figures, " ")))
		figures, columns = page.Blank(belowColumns), r.width-belowColumns
	}
	figures = r.Paint(page.Dim, figures)
	held := ""
	if len(s.holders) > 0 && !s.held {
		held = ", " + s.holders.Text(r.Separator())
	}
	for _, both := range []string{r.calls(line, caller), r.calls(line, page.InFileOf(line, caller))} {
		switch {
		case r.whole || page.Width(both+op+held) <= columns:
			r.line(figures, both, r.Paint(page.Dim, op+held))
			return
		case page.Width(both+op) <= columns:
			r.line(figures, both, r.Paint(page.Dim, op))
			return
		case caller != "" && page.Width(both) <= columns:
			r.line(figures, both)
			return
		}
	}
	rest := r.cut(op, max(columns-page.Width(line), 0))
	if page.Width(rest) < page.Width(r.Separator())+4 {
		rest = ""
	}
	r.line(figures, r.cut(line, columns), r.Paint(page.Dim, rest))
	if caller != "" {
		r.line(page.Blank(r.width-columns), r.cut(strings.TrimLeft(r.calls("", caller), " "), columns))
	}
}

// calls joins a call and its caller, if there is one.
func (r *report) calls(call, caller string) string {
	if caller == "" {
		return call
	}
	return call + r.Arrow() + caller
}
