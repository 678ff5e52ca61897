package aggregate

import (
	"encoding/binary"
	"errors"

	"ttmem/tracer/event"
)

// noteLevel is to be called after each change of what buffers take of a region of the
// chip or, in L1, circular buffers; grew is true where it was no free.
func (c *chip) noteLevel(region event.Region, grew bool) {
	if region == event.L1 {
		static := c.used.static.cores.Max()
		c.l1.note(c.used.regions[event.L1].perBank+static, static, c.capacities[event.L1].BytesPerBank, grew)
		c.staticRange = c.staticRange.with(c.l1.static)
	}
	c.ranges[region] = c.ranges[region].with(c.level(region))
}

// level is what a peak of the region counts, in bytes: of L1 what is taken of each core,
// by buffers and by circular buffers on the core where these take most (l1Level).
func (c *chip) level(region event.Region) uint64 {
	if region == event.L1 {
		return c.l1.all
	}
	return c.used.regions[region].allocated
}

// rangesVersion is the first byte of ranges.
const rangesVersion = 1

// statics is the place of circular buffers among the levels of a chip, behind the
// regions.
const statics = event.BankedRegions

// levels are how the levels of a chip went up and down.
type levels [statics + 1]levelRange

// A levelRange is the least and the most that a level was, and what it is at the end.
type levelRange struct {
	Span
	now uint64
}

// maxRangedChips is how many chips ranges may have: their timelines take 100 MB then.
const maxRangedChips = 1024

// TakeRanges returns the least and the most bytes that each region of each chip had
// since TakeRanges was last called, and begins anew: for a NotedPeaks. It changes
// nothing else, and nothing that Snapshot or Freeze look at.
//
// It is a byte with the version, and then, in order of chips, what is not 0 or was not
// all the time: a signed varint of the difference to the chip before; a varint with a
// bit for each region, as numbered in package event, and then for circular buffers, or 0
// where it is all as that of the chip before; and for each bit the least, how much more
// the most is, and how much more there was at the end, varints.
func (s *State) TakeRanges() []byte {
	b := []byte{rangesVersion}
	before, known := 0, false
	var last levels
	for _, id := range sortedKeys(s.chips) {
		l := s.chips[id].takeLevels()
		if l == (levels{}) {
			continue
		}
		b = binary.AppendVarint(b, int64(id-before))
		before = id
		if known && l == last {
			b = append(b, 0)
			continue
		}
		last, known = l, true
		b = l.append(b)
	}
	return b
}

// takeLevels returns the levels since they were last taken.
func (c *chip) takeLevels() (l levels) {
	for region := range event.Region(event.BankedRegions) {
		now := c.level(region)
		l[region] = levelRange{c.ranges[region], now}
		c.ranges[region] = Span{now, now}
	}
	now := c.l1.static
	l[statics] = levelRange{c.staticRange, now}
	c.staticRange = Span{now, now}
	return l
}

func (l *levels) append(b []byte) []byte {
	var mask uint64
	for i := range l {
		if l[i] != (levelRange{}) {
			mask |= 1 << i
		}
	}
	b = binary.AppendUvarint(b, mask)
	for i := range l {
		if r := &l[i]; *r != (levelRange{}) {
			b = binary.AppendUvarint(b, r.Min)
			b = binary.AppendUvarint(b, r.Max-r.Min)
			b = binary.AppendUvarint(b, r.now-r.Min)
		}
	}
	return b
}

// errRanges says that something is not what TakeRanges returns.
var errRanges = errors.New("these are no ranges")

// readRanges gives what TakeRanges returned to use, chip by chip.
func readRanges(b []byte, use func(device int, l *levels)) error {
	if len(b) == 0 || b[0] != rangesVersion {
		return errRanges
	}
	b = b[1:]
	var l levels
	chips, id := 0, int64(0)
	for ; len(b) > 0; chips++ {
		delta, n := binary.Varint(b)
		if n <= 0 || chips == maxRangedChips || chips > 0 && delta <= 0 {
			return errRanges
		}
		id, b = id+delta, b[n:]
		if int64(int32(id)) != id {
			return errRanges
		}
		rest, ok := l.read(b, chips == 0)
		if !ok {
			return errRanges
		}
		b = rest
		use(int(id), &l)
	}
	return nil
}

// read reads the levels of a chip, which may be as they are unless it is the first one.
func (l *levels) read(b []byte, first bool) (rest []byte, ok bool) {
	number := func() uint64 {
		v, n := binary.Uvarint(b)
		ok = ok && n > 0
		b = b[max(n, 0):]
		return v
	}
	ok = true
	mask := number()
	if mask == 0 {
		return b, ok && !first
	}
	*l = levels{}
	for i := range l {
		if mask>>i&1 == 0 {
			continue
		}
		least := number()
		r := levelRange{Span{least, least + number()}, least + number()}
		ok = ok && r.Min <= r.now && r.now <= r.Max
		l[i] = r
	}
	return b, ok && mask>>len(l) == 0
}
