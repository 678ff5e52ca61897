package aggregate

import (
	"ttmem/tracer/event"
)

// NotedPeaks are the peaks of a recording as its notes tell them: how high they were and
// in which note, and how each region went up and down, to the length of a note. What
// they were made of, and their moments, are found in the events of those notes, with
// Peaks of the events from a checkpoint before on; Complete makes it all one.
type NotedPeaks struct {
	begin    uint64
	restored bool
	notes    int
	regions  map[regionOf]*notedRegion
	// wrong is true where the events say something else.
	wrong bool
}

// A notedRegion is one region of a chip.
type notedRegion struct {
	line, staticLine *Timeline
	peak             uint64
	note             int         // in which the peak is first
	found            *RegionPeak // nil: not yet
}

// A NotedPeak says that a region was fullest with so many Bytes, first in the Note of
// that number.
type NotedPeak struct {
	Device int
	Region event.Region
	Bytes  uint64
	Note   int
}

// NewNotedPeaks returns those of a recording that begins at that time; restored is true
// where it does so with a checkpoint.
func NewNotedPeaks(beginNs uint64, restored bool) *NotedPeaks {
	return &NotedPeaks{begin: beginNs, restored: restored, regions: make(map[regionOf]*notedRegion)}
}

// Add adds the next note, of the events from one time to another: what TakeRanges
// returned then. Where it is something else the error says so.
func (n *NotedPeaks) Add(firstNs, lastNs uint64, ranges []byte) error {
	err := readRanges(ranges, func(device int, l *levels) {
		for region := range event.Region(event.BankedRegions) {
			r := &l[region]
			if *r == (levelRange{}) {
				continue
			}
			to := n.region(regionOf{device, region})
			to.line.cover(firstNs, lastNs, r.Span, r.now)
			if region == event.L1 {
				s := &l[statics]
				to.staticLine.cover(firstNs, lastNs, s.Span, s.now)
			}
			if r.Max > to.peak {
				to.peak, to.note = r.Max, n.notes
			}
		}
	})
	n.notes++
	return err
}

func (n *NotedPeaks) region(of regionOf) *notedRegion {
	r := n.regions[of]
	if r == nil {
		r = &notedRegion{line: newTimeline(n.begin, 0), staticLine: newTimeline(n.begin, 0)}
		n.regions[of] = r
	}
	return r
}

// Missing are the peaks that were not found yet, in no order.
func (n *NotedPeaks) Missing() []NotedPeak {
	var list []NotedPeak
	for of, r := range n.regions {
		if r.found == nil && r.peak > 0 {
			list = append(list, NotedPeak{of.device, of.region, r.peak, r.note})
		}
	}
	return list
}

// Find takes those that are missing from peaks of some of the events, which are to be
// given in the order of their times.
func (n *NotedPeaks) Find(p *Peaks) {
	holders := p.peakHolders()
	for of, r := range n.regions {
		q := p.knownPool(of)
		switch {
		case q == nil || r.found != nil || q.peak < r.peak:
		case q.peak > r.peak:
			n.wrong = true
		default:
			peak := p.peakOf(q, holders[q])
			r.found = &peak
		}
	}
}

// knownPool is the pool of a region, or nil.
func (p *Peaks) knownPool(of regionOf) *pool {
	c := p.chips[of.device]
	if c == nil {
		return nil
	}
	return &c.pools[of.region]
}

// Complete makes peaks of the events from a checkpoint on to the end those of all, and
// reports whether they are: not where the notes say something else than the events. Of
// regions that are not wanted what they were made of need not have been found. Nothing
// is to be applied any more.
func (n *NotedPeaks) Complete(p *Peaks, wanted func(device int, region event.Region) bool) bool {
	for of, r := range n.regions {
		q := p.knownPool(of)
		switch {
		case q == nil:
			return false
		case r.found != nil && r.peak >= q.peak:
			p.linesOf(q).before = r.found
		case r.peak < q.peak: // at the end, without a note
		case !wanted(of.device, of.region):
			p.linesOf(q).before = &RegionPeak{Device: of.device, Region: of.region, Bytes: r.peak}
		case r.peak > q.peak:
			return false
		}
	}
	for _, c := range p.chips {
		for region := range c.pools {
			r := n.region(regionOf{c.id, event.Region(region)})
			l := p.linesOf(&c.pools[region])
			l.line, l.static = r.line.followedBy(l.line, p.now), r.staticLine.followedBy(l.static, p.now)
		}
	}
	p.begin, p.restored = n.begin, n.restored
	return !n.wrong
}
