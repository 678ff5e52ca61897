package past

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate/memory"
	"ttmem/tracer/codec"
)

// A testSite is a call site of a user.
type testSite struct{ uid, number int }

func (s testSite) UID() int                { return s.uid }
func (s testSite) Chips() uint64           { return 1 }
func (s testSite) Named() memory.Survivors { return memory.Survivors{} }

// end ends a buffer of each of so many call sites. It was allocated after the mark after, and
// the newest mark is last.
func end(p *Past, uid, sites int, after, last uint64, ended bool) {
	marks := Marks{last}
	if after > 0 && after < last {
		marks = Marks{after, last}
	}
	for i := range sites {
		p.Add(Buffers{testSite{uid, i}, memory.Amount{Count: 1, Bytes: 10}, after + 1}, marks, ended)
	}
}

// liveAt counts the buffers that were live at a mark.
func liveAt(p *Past, mark uint64) (n uint64) {
	for _, one := range p.list {
		if one.isLiveAt(mark) {
			n += one.Count
		}
	}
	return n
}

// TestAMarkIsKnownAsAWholeOrForgotten: the oldest marks are forgotten, and of those that are known
// nothing is missing.
func TestAMarkIsKnownAsAWholeOrForgotten(t *testing.T) {
	const sites, marks = 1000, 120 // 120,000 sums
	var p Past
	for i := range uint64(marks) {
		end(&p, 7, sites, 10*i, 10*(i+1), false)
		if len(p.list) > maxPast {
			t.Fatalf("%d sums", len(p.list))
		}
	}
	known := 0
	for i := range uint64(marks) {
		mark := 10 * (i + 1)
		if !p.Knows(7, mark) {
			qt.Check(t, qt.Equals(liveAt(&p, mark), 0))
			qt.Check(t, qt.Equals(known, 0), qt.Commentf("an older mark than %d is known", mark))
			continue
		}
		known++
		qt.Check(t, qt.Equals(liveAt(&p, mark), sites))
	}
	qt.Check(t, qt.IsTrue(known >= maxPast/2/sites && known < marks), qt.Commentf("%d marks are known", known))
	qt.Check(t, qt.Equals(len(p.index), len(p.list)))
}

// TestTheNewestMarkIsAlwaysKnown, also if more was live at it than a Past keeps otherwise.
func TestTheNewestMarkIsAlwaysKnown(t *testing.T) {
	var p Past
	const many = maxPast + 1000
	end(&p, 7, 100, 0, 10, false)
	end(&p, 7, many, 10, 20, false)
	qt.Check(t, qt.IsTrue(p.Knows(7, 20)))
	qt.Check(t, qt.Equals(liveAt(&p, 20), many))
	qt.Check(t, qt.IsFalse(p.Knows(7, 10)))

	// It is forgotten when there is a newer one.
	end(&p, 7, many, 20, 30, false)
	qt.Check(t, qt.IsTrue(p.Knows(7, 30)))
	qt.Check(t, qt.Equals(liveAt(&p, 30), many))
	qt.Check(t, qt.IsFalse(p.Knows(7, 20)))
	qt.Check(t, qt.Equals(liveAt(&p, 20), 0))
}

// TestNewestMarksOfManyUsersAreBounded: the users with most lose theirs, and others do not.
func TestNewestMarksOfManyUsersAreBounded(t *testing.T) {
	var p Past
	end(&p, 7, 100, 0, 10, false)
	const users, sites = 9, maxPast / 4
	for uid := range users {
		end(&p, 1000+uid, sites, 10, 20, false)
		qt.Assert(t, qt.IsTrue(len(p.list) <= 2*maxPast))
	}
	qt.Check(t, qt.Equals(len(p.index), len(p.list)))
	qt.Check(t, qt.IsTrue(p.Knows(7, 10)))
	qt.Check(t, qt.Equals(liveAt(&p, 10), 100))
	forgot := -1
	for uid := range users {
		if !p.Knows(1000+uid, 20) {
			forgot = 1000 + uid
		}
	}
	qt.Assert(t, qt.Not(qt.Equals(forgot, -1)))

	before := len(p.list)
	end(&p, forgot, sites, 10, 20, false) // adds nothing to a mark that is forgotten
	qt.Check(t, qt.HasLen(p.list, before))
	end(&p, forgot, 100, 20, 30, false)
	qt.Check(t, qt.IsTrue(p.Knows(forgot, 30)))
	qt.Check(t, qt.Equals(liveAt(&p, 30), 100))
}

// TestAUserForgetsOnlyOwnMarks: a user who has much does not displace what another has.
func TestAUserForgetsOnlyOwnMarks(t *testing.T) {
	var p Past
	end(&p, 7, 100, 0, 10, false)
	for i := range uint64(maxPast / 100) {
		end(&p, 8, 100, 10+i, 11+i, false)
	}
	qt.Check(t, qt.IsTrue(p.Knows(7, 10)))
	qt.Check(t, qt.Equals(liveAt(&p, 10), 100))
	qt.Check(t, qt.IsFalse(p.Knows(8, 11)))
	qt.Check(t, qt.IsFalse(p.Knows(0, 10))) // root's are of all users
}

// TestWhatEndsAfterTheNewestMarkIsAddedUp: processes that begin and end after it are ever more.
func TestWhatEndsAfterTheNewestMarkIsAddedUp(t *testing.T) {
	var p Past
	end(&p, 7, maxPast+1000, 10, 10, true)
	qt.Check(t, qt.IsTrue(len(p.list) < maxPast))
	qt.Check(t, qt.IsTrue(p.Knows(7, 10)))
	survivors := func(from, to uint64) (n, others, over uint64) {
		b := p.From(from, 100, func(func(Buffers) bool) {})
		if to > 0 {
			b.To(to)
		}
		list, rest, ended := b.Survivors(nil, 100, func(func(Buffers) bool) {})
		for _, one := range list {
			n += one.Count
		}
		return n, rest.Count, ended.Count
	}
	p = written(t, &p)
	n, others, over := survivors(10, 0) // to the end, with what ended with its process
	qt.Check(t, qt.Equals(n+others, maxPast+1000))
	qt.Check(t, qt.IsTrue(n >= maxPast/2 && others > 0))
	qt.Check(t, qt.Equals(over, 0))
	n, others, over = survivors(10, 20) // they had ended
	qt.Check(t, qt.Equals(n+others, 0))
	qt.Check(t, qt.Equals(over, maxPast+1000))
	n, others, over = survivors(20, 0)
	qt.Check(t, qt.Equals(n+others+over, 0))
}

// TestBuffersThatEndLaterCountOnce: a Past goes on while a Between follows.
func TestBuffersThatEndLaterCountOnce(t *testing.T) {
	var p Past
	closes := func(follow func(Buffers)) {
		one := Buffers{testSite{7, 1}, memory.Amount{Count: 1, Bytes: 10}, 11}
		follow(one)
		p.Add(one, Marks{10}, true)
	}
	closes(func(Buffers) {})
	b := p.From(10, 100, func(func(Buffers) bool) {})
	closes(func(one Buffers) { b.End(one, 101, true, nil) })
	list, _, _ := b.Survivors(nil, 102, func(func(Buffers) bool) {})
	qt.Assert(t, qt.HasLen(list, 1))
	qt.Check(t, qt.Equals(list[0].Count, 2))
}

// written is the past after it was written and read.
func written(t *testing.T, p *Past) (read Past) {
	w := codec.NewWriter()
	site := func(c *codec.Codec) func(*Site) {
		return func(of *Site) {
			s, _ := (*of).(testSite)
			codec.Number(c, &s.uid)
			codec.Number(c, &s.number)
			*of = s
		}
	}
	p.Code(w, site(w))
	r := codec.NewReader(w.Data, nil)
	read.Code(r, site(r))
	qt.Assert(t, qt.IsFalse(r.Bad))
	qt.Assert(t, qt.HasLen(r.Data, 0))
	return read
}
