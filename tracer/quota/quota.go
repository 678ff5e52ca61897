// Package quota bounds what each user has of a resource that grows with events.
// It is not part of ttmem's Go library: it changes without notice.
package quota

// What the tracer and a State keep of the processes of a user, and of all users together.
const (
	// Allocations are live buffers, and circular buffers, kernels and captured runs on each chip. In the
	// tracer they are live buffers and programs.
	Allocations, AllAllocations = 1 << 20, 1 << 22
	// TracedByUsers are those of the processes of a user that is not root: a tracer of all processes answers many, and each
	// answer may list all.
	TracedByUsers = 3 << 17
	// Program is how much a program counts, in a State on each chip: each snapshot looks at all.
	Program = 32
)

// Beyond is the cause of losses for lack of room.
const Beyond = "beyond the limit of its user"

// A Quota counts what the processes of each user have.
type Quota struct {
	each, total int
	ofUser      int         // as each, for others than root's processes
	users       map[int]int // without last
	all         int
	// last is the user whose count changed last, and has the count: most changes follow another one of the
	// same user.
	last, has int
	// spent are the steps of each user that count at a time.
	spent map[int]spent
}

type spent struct{ steps, atNs uint64 }

// The events of all users wait for each other. A step is a part of an event that takes some ten nanoseconds, such as what is
// done for one of its chips. A user's processes may cause stepsAtOnce, and stepsAMicrosecond in the long run.
const stepsAtOnce, stepsAMicrosecond = 1 << 21, 1

// Spend counts steps of a user at a time, and reports whether the user has not had too many lately.
func (q *Quota) Spend(user, steps int, nowNs uint64) bool {
	s := q.spent[user]
	s.steps -= min(s.steps, (nowNs-min(nowNs, s.atNs))/1000*stepsAMicrosecond)
	s.atNs = max(s.atNs, nowNs)
	may := s.steps < stepsAtOnce
	if may {
		s.steps += uint64(steps)
	}
	if q.spent == nil {
		q.spent = make(map[int]spent)
	}
	q.spent[user] = s
	return may
}

// New returns a Quota of which each user may have so much, while there is room for all. A user gets at
// most half of what the others leave, so that there is always some for one more.
func New(each, total int) *Quota {
	return &Quota{each: each, ofUser: each, total: total, users: make(map[int]int)}
}

// LimitUsers bounds what others than the processes of root may have each. Those are users by the negative of their id.
func (q *Quota) LimitUsers(each int) *Quota {
	q.ofUser = each
	return q
}

// Take adds n for a user, and reports whether they fit. n may be negative: that always fits.
func (q *Quota) Take(user, n int) bool {
	has := q.Of(user)
	each := q.each
	if user > 0 {
		each = q.ofUser
	}
	if n > 0 && has+n > min(each, (q.total-(q.all-has))/2) {
		return false
	}
	q.Add(user, n)
	return true
}

// Add adds n for a user, whether or not they fit: what was there already.
func (q *Quota) Add(user, n int) {
	if user != q.last {
		if q.has > 0 {
			q.users[q.last] = q.has
		}
		q.last, q.has = user, q.users[user]
		delete(q.users, user)
	}
	q.all += n
	q.has = max(0, q.has+n)
}

// Full reports whether all users together have more than there is room for.
func (q *Quota) Full() bool { return q.all > q.total }

// Of returns how much a user has.
func (q *Quota) Of(user int) int {
	if user == q.last {
		return q.has
	}
	return q.users[user]
}

// A Share is what one process has of a Quota. The zero value has nothing.
type Share struct {
	user, has int
}

// User returns whose quota it is a share of.
func (s *Share) User() int { return s.user }

// batch is how much a Share takes at once, so that most changes need not look up the user.
const batch = 64

// Hold sets how much a process has, and reports whether that fits; if not, nothing changes.
func (s *Share) Hold(q *Quota, user, n int) bool {
	if s.has > 0 && user != s.user { // it became known
		q.Take(s.user, -s.has)
		s.has = 0
	}
	s.user = user
	if n > s.has || n < s.has-2*batch {
		to := (n + batch - 1) / batch * batch
		if n > s.has && !q.Take(user, to-s.has) {
			if to = n; !q.Take(user, to-s.has) {
				return false
			}
		} else if n <= s.has {
			q.Take(user, to-s.has)
		}
		s.has = to
	}
	return true
}

// Release gives back all that a process has.
func (s *Share) Release(q *Quota) {
	q.Take(s.user, -s.has)
	s.has = 0
}

// Restore sets how much a process had already, whether or not that fits.
func (s *Share) Restore(q *Quota, user, n int) {
	q.Add(user, n)
	s.user, s.has = user, n
}
