package unwind

// maxRules bounds the rules of a table; a row has 16 bits for the number of its rule. The largest
// libraries have 1,300.
const maxRules = 1 << 13

// unsupported stands for everything that a Rule cannot express.
var unsupported = Rule{CFA: Unsupported}

// rows collects the rows of a table, in order of address.
type rows struct {
	t *Table
	// rule is the number of the rule in force at the end of the last row
	rule uint32
	// full is true if a row was dropped because there are maxRows
	full bool

	numbers map[Rule]uint32
	// recent caches rules and their numbers by hash: the map would take a third of the time
	recent [1024]struct {
		rule   Rule
		number uint32
	}
}

// newRows begins a table of the code from first to before end; about is the expected number
// of rows.
func newRows(t *Table, first, end uint64, about int) *rows {
	t.FirstPage = uint32(first >> PageShift)
	pages := (end-1)>>PageShift - first>>PageShift + 1
	t.Index = make([]uint32, 0, pages+1)
	t.Rows = make([]uint32, 0, about)
	// this also initialises recent: the rule of zeroes has number 0
	t.Rules = append(t.Rules, Rule{}, unsupported)
	return &rows{t: t, numbers: map[Rule]uint32{{}: 0, unsupported: 1}}
}

// put sets the rule in force from an address on. Addresses ascend.
func (r *rows) put(addr uint64, rule Rule) {
	number := r.number(rule)
	if number == r.rule {
		return
	}
	if r.full = len(r.t.Rows) >= maxRows; r.full {
		return
	}
	page := addr>>PageShift - uint64(r.t.FirstPage)
	offset := uint32(addr & (pageSize - 1))
	if offset == 0 {
		r.begin(page) // the page begins with the row
		r.rule = number
		return
	}
	r.begin(page + 1)
	if uint32(len(r.t.Rows)) == r.t.Index[page] { // the page began with NoRow
		r.t.Rows = append(r.t.Rows, 0)
	}
	r.t.Rows = append(r.t.Rows, offset<<16|number)
	r.rule = number
}

// begin begins pages, up to n, with the rule in force.
func (r *rows) begin(n uint64) {
	for uint64(len(r.t.Index)) < n {
		r.t.Index = append(r.t.Index, uint32(len(r.t.Rows)))
		if r.rule != 0 {
			r.t.Rows = append(r.t.Rows, r.rule)
		}
	}
}

// finish ends the table at an address.
func (r *rows) finish(end uint64) {
	r.put(end, Rule{})
	r.begin((end-1)>>PageShift - uint64(r.t.FirstPage) + 1)
	r.t.Index = append(r.t.Index, uint32(len(r.t.Rows)))
}

// number returns the number of a rule, and adds it if needed.
func (r *rows) number(rule Rule) uint32 {
	hash := uint32(rule.CFA) + uint32(rule.BP)<<4 + uint32(rule.BPOffset)<<3 + uint32(rule.CFAOffset)<<1
	entry := &r.recent[(hash^hash>>10)%uint32(len(r.recent))]
	if entry.rule == rule {
		return entry.number
	}
	number, ok := r.numbers[rule]
	if !ok {
		if len(r.t.Rules) == maxRules {
			return 1 // unsupported
		}
		number = uint32(len(r.t.Rules))
		r.t.Rules = append(r.t.Rules, rule)
		r.numbers[rule] = number
	}
	entry.rule, entry.number = rule, number
	return number
}
