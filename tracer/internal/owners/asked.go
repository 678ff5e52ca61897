package owners

// Asked are the users who want the owners of their processes searched, until they ask no more.
type Asked map[int]*asked

type asked struct {
	peaks, marks int  // of those who want it at new peaks, and of those who want it at marks, too
	marked       bool // a mark of the user was set since the last look
}

// Add adds one who wants it at new peaks and, with marks, at marks, too; by is -1 for one who asks no more.
func (a Asked) Add(uid int, marks bool, by int) {
	of := a[uid]
	if of == nil {
		of = new(asked)
		a[uid] = of
	}
	if of.peaks += by; marks {
		of.marks += by
	}
	if of.peaks == 0 {
		delete(a, uid)
	}
}

// AtPeaks reports whether a user's processes are searched at new peaks, and AtMarks whether they are at marks.
func (a Asked) AtPeaks(uid int) bool { return a[uid] != nil }

// AtMarks: see AtPeaks.
func (a Asked) AtMarks(uid int) bool { return a[uid] != nil && a[uid].marks > 0 }

// Mark notes a mark of a user, for the next look: a user may set a thousand a second.
func (a Asked) Mark(uid int) {
	if a.AtMarks(uid) {
		a[uid].marked = true
	}
}

// Marked reports whether a user set marks since the last look, and Look begins the next one.
func (a Asked) Marked(uid int) bool { return a[uid] != nil && a[uid].marked }

// Look: see Marked.
func (a Asked) Look() {
	for _, of := range a {
		of.marked = false
	}
}
