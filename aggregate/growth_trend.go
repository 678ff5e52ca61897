package aggregate

// A trend follows how many buffers of a site there are, from its first allocation on:
// the least number in each of up to trendWindows windows of equal length. The clock is
// the allocations of the process, so that waiting and compiling count for nothing.
// Where the windows are full, two become one.
type trend struct {
	start uint64 // on the clock
	shift uint8  // a window is 1<<shift allocations of the process long
	at    uint8  // the window that it is in
	// base is how many there were at its beginning of which it is not to be told how they
	// came to be there.
	base uint32
	low  [trendWindows]uint32
}

const (
	trendWindows = 32
	// trendIntervals is how many intervals a trend is judged by, made of the windows.
	trendIntervals = 8
	// trendCount is how many buffers have to be left for a trend.
	trendCount = 5
)

// reach goes on to a time on the clock, with live buffers until then.
func (t *trend) reach(clock, live uint64) {
	window := (clock - t.start) >> t.shift
	for window >= trendWindows {
		for i := range trendWindows / 2 {
			t.low[i] = min(t.low[2*i], t.low[2*i+1])
		}
		if t.at%2 == 0 {
			t.low[t.at/2] = t.low[t.at] // the one beside it was not begun
		}
		t.at /= 2
		t.shift++
		window >>= 1
	}
	for uint64(t.at) < window {
		t.at++
		t.low[t.at] = uint32(live)
	}
}

// fall notes that there are fewer in this window.
func (t *trend) fall(live uint64) { t.low[t.at] = min(t.low[t.at], uint32(live)) }

// A Trend is how the number of buffers of one stack went, from its first allocation to
// the end, in intervals in each of which the process allocated as much.
type Trend struct {
	// Intervals is how many there are, 0 where there is too little to tell; Rises in
	// how many of them the number rose above what it had been at least, and Last is
	// the last of those, from 1.
	Intervals, Rises, Last int
	// Growing is true where it rose in most of the intervals, and to the end.
	Growing bool
	// Lonely is true where the process freed next to nothing meanwhile: this is how
	// weights are loaded, too.
	Lonely bool
}

// trendOf judges the levels at the beginnings of intervals and at the end of the last.
func trendOf(levels []uint64) Trend {
	n := len(levels) - 1
	t := Trend{Intervals: n}
	top := levels[0]
	for i, level := range levels[1:] {
		if level > top {
			t.Rises, t.Last, top = t.Rises+1, i+1, level
		}
	}
	t.Growing = 4*t.Rises >= 3*n && t.Last > n-max(1, n/4)
	return t
}

// view judges the trend up to a time on the clock, with live buffers there.
func (t trend) view(clock, live uint64) Trend {
	if live < uint64(t.base)+trendCount {
		return Trend{}
	}
	t.reach(clock, live)
	windows := int((clock-t.start-1)>>t.shift) + 1
	intervals := min(trendIntervals, int(min(live-uint64(t.base), trendIntervals)), windows)
	levels := make([]uint64, intervals+1)
	for i := range intervals {
		from, to := i*windows/intervals, (i+1)*windows/intervals
		level := t.low[from]
		for _, low := range t.low[from:to] {
			level = min(level, low)
		}
		levels[i] = uint64(level)
	}
	levels[intervals] = live
	return trendOf(levels)
}

// clearer is the trend that says more of the two.
func (t Trend) clearer(other Trend) Trend {
	if other.Growing != t.Growing {
		if other.Growing {
			return other
		}
		return t
	}
	if other.Rises > t.Rises || t.Intervals == 0 {
		return other
	}
	return t
}

// begin begins to follow how many there are: some are there already.
func (s *growthSite) begin() {
	p := s.process
	s.rests, s.trend, s.churn[0] = false, trend{start: p.allocations}, p.frees
	s.trend.low[0] = uint32(s.live.Count)
	s.made, s.lastAt, s.gap = s.live.Count, p.allocations, 1
}

// rest keeps what the trend says when buffers end with their device: it is not that of
// what is allocated when it is open again.
func (s *growthSite) rest(p *growthProcess) {
	if !s.rests {
		s.best, s.rests = s.trendNow(p), true
	}
}

// quiet is after how many times the longest time between two allocations there will be
// no other: weights are loaded one after the other, and then they are.
const quiet = 4

// trendNow is the clearest trend up to now.
func (s *growthSite) trendNow(p *growthProcess) Trend {
	if s.rests {
		return s.best
	}
	trend, live := s.trend, s.live.Count
	if s.tail.Count > 0 && s.tailAt == p.allocations {
		trend.low[trend.at] = s.tailLow
		live += s.tail.Count
	}
	t := trend.view(p.allocations, live)
	if p.allocations-s.lastAt > quiet*s.gap {
		t.Growing = false // it has stopped
	}
	// what is mostly given back goes up and down by chance, too
	if t.Growing && 2*live < s.made && t.Rises < t.Intervals-1 {
		t.Growing = false
	}
	t.Lonely = 2*(s.churn[1]-s.churn[0]) < live-min(live, uint64(trend.base))
	return s.best.clearer(t)
}
