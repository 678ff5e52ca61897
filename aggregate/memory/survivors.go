package memory

// BirthWindows is how many windows of equal length the run of a site has, in each of which
// the births of its survivors are counted.
const BirthWindows = 8

// Survivors are those of one call site.
type Survivors struct {
	Site
	// Comm and Command are those of its process.
	Comm, Command string
	// Amount has the bytes on all chips. It is what is live, or ended with its device or
	// process. FreedAtTeardown is what was freed between the last allocation and that; it is
	// not in Amount.
	Amount
	FreedAtTeardown Amount
	// AgeNs is the age of the oldest, or what it was when that ended.
	AgeNs uint64
	// Allocated is how many the site allocated in all.
	Allocated uint64
	// WorkedFromNs and WorkedToNs are when its process first and last allocated a buffer.
	WorkedFromNs, WorkedToNs uint64
	// Run is when they were allocated. Where the device was closed several times it is of
	// the run between two of these that left most.
	Run Run
}

// A Run is what is known of the survivors of a site while the device was open. First, Last
// and so on are IDs of buffers.
type Run struct {
	// Births counts survivors by when they were allocated. The windows go from the first
	// allocation of the site to the last of its process.
	Births [BirthWindows]uint64
	// First and Last are the first and the last allocation of the site, and Gap is the
	// longest way from one to the next.
	First, Last, Gap uint64
	// ProcessFirst and ProcessLast are the first and the last allocation of the process.
	ProcessFirst, ProcessLast uint64
	// FreedAt is the last allocation of the process before the site last freed a buffer; 0:
	// it freed none. Outlived is how many survivors are older than one that it freed.
	FreedAt, Outlived uint64
	// FreedMeanwhile is how many buffers the process freed between First and Last.
	FreedMeanwhile uint64
	// Replaceable is how many buffers of before the attach were freed on the same chips
	// and in the same region: survivors may have taken their place.
	Replaceable uint64
}

// Total returns the number of survivors in Births.
func (r *Run) Total() (n uint64) {
	for _, births := range r.Births {
		n += births
	}
	return n
}

// SurvivorsBetween is what one call site allocated after the first of two moments and what
// survived to the second.
type SurvivorsBetween struct {
	// Survivors has no Run.
	Survivors
	// Births are the survivors by the intervals in which they were allocated, and
	// TeardownBirths those of FreedAtTeardown.
	Births, TeardownBirths []Amount
	// Replaced is what was live at the first moment and is gone: as many survivors may
	// only have taken its place.
	Replaced Amount
}
