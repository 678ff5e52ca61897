package report

import (
	"cmp"
	"strings"

	"ttmem/aggregate/analyze"
	"ttmem/aggregate/memory"
	"ttmem/aggregate/name"
	"ttmem/cmd/ttmem/internal/page"
	"ttmem/cmd/ttmem/internal/page/alloc"
	"ttmem/cmd/ttmem/internal/page/table"
	"ttmem/tracer/event"
)

const (
	// leastName is the minimum width of the name of a place.
	leastName = 36
	// belowColumns is the indent of a name on its own line.
	belowColumns = 14
)

// nouns name the kinds of what a program places in L1.
var nouns = map[string]string{event.CircularBuffer.String(): "CB", event.DataflowBuffer.String(): "DFB", event.Scratchpad.String(): "scratchpad"}

// sources are call sites.
type sources struct{ table.Table }

func newSources() *sources { return &sources{table.Table{Names: &alloc.Namer{}, By: "stack"}} }

// add adds a call site. mention is its region, which is "" if it needs no mention.
func (l *sources) add(s *memory.Site, a memory.Amount, mention string, holders []analyze.Holder) {
	for _, part := range l.Names.Parts(s, a, holders, "") {
		part.Mention = mention
		l.Add(part, s.Static, mention)
	}
}

// addOwned adds what an owner holds of a call site: what a helper allocates for a model is told apart by the
// model's parts. An owner has one row for each line.
func (l *sources) addOwned(part *alloc.Row) {
	if part.Stack == nil || part.Owner.Path == "" {
		l.Add(part)
		return
	}
	one := *part
	one.Owner = memory.Owner{Path: name.FoldOwner(part.Owner.Path)}
	look := l.Names.Look(&one, one.Owner.Path)
	look.Calls, look.Callers = "", nil
	l.AddAs(&one, look.Key, look)
}

// noun is what one of a row's buffers is called.
func noun(r *alloc.Row) string {
	if r.Look.Class != nil {
		return r.Look.Class.Noun
	}
	return cmp.Or(nouns[r.Layout], "buffer")
}

// sources writes the largest call sites, with their share of the bytes in of (0 if unknown), and the
// sum of the others.
func (r *report) sources(list []*alloc.Row, limit int, of uint64, format func(uint64) string) {
	columns := page.Columns{12, 5, 13}
	if of == 0 {
		columns[1] = 0
	}
	shown := len(list)
	// A single further place takes no more room than its summary.
	if shown > limit+1 {
		shown = limit
	}
	mentions := 0
	for _, s := range list[:shown] {
		columns[2] = max(columns[2], len("  ")+page.Width(page.Count(s.Amounts[0].Count, noun(s))))
		if s.Mention != "" {
			mentions = max(mentions, page.Width(s.Mention)+2)
		}
	}
	alloc.Distinguish(alloc.SitesOf(list[:shown]))
	for _, s := range list[:shown] {
		count := ""
		if n := s.Amounts[0].Count; n > 0 {
			count = page.Count(n, noun(s))
		}
		figures := columns.Line(format(s.Amounts[0].Bytes), page.Percent(s.Amounts[0].Bytes, of), count) + "  "
		r.source(s, figures+page.Left(s.Mention, mentions)[:mentions])
	}
	others, sites := alloc.Total(list[shown:]), uint64(0)
	for _, s := range list[shown:] {
		sites += uint64(max(1, s.Sites))
	}
	if sites > 0 {
		figures := columns.Line(format(others.Bytes), page.Percent(others.Bytes, of), page.Count(others.Count, "buffer"))
		r.line(r.Paint(page.Dim, figures+"  "+page.Count(sites, "other call site")))
	}
}

// source writes the place of a call site beside its figures, or below them if there is no room:
// first the line, then the caller, and then the operation and who holds the buffers if they fit.
func (r *report) source(s *alloc.Row, figures string) {
	line, caller, op := page.Clean(s.Name.Call.String()), s.Caller, page.Clean(s.Name.Op)
	switch {
	case line == "":
		line, op = strings.TrimPrefix(s.Text, s.Look.Class.Mention()+" · "), "" // the noun has the class
	case s.Owner.Path != "":
		line, caller = page.Clean(s.Owner.Path), line
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
	if len(s.Holders) > 0 && s.Owner.Path == "" { // otherwise the owner is in place of the stack
		held = ", " + s.Holders.Text(r.Separator())
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
