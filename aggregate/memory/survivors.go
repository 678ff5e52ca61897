package memory

// BirthWindows is the number of windows of equal length in the run of a site. The births of its
// survivors are counted by window.
const BirthWindows = 8

// Survivors are the survivors of one call site.
type Survivors struct {
	Site
	// Comm and About are those of its process.
	Comm string
	About
	// Amount counts buffers that are live or ended with their device or process, with the bytes
	// on all chips. FreedAtTeardown counts buffers that were freed between the last allocation
	// and that end; they are not in Amount.
	Amount
	FreedAtTeardown Amount
	// AgeNs is the age of the oldest, now or at its end.
	AgeNs uint64
	// Allocated is how many the site allocated in all.
	Allocated uint64
	// Fresh counts those that are live and were allocated after State.FreshSince, on each chip.
	Fresh Amount
	// WorkedFromNs and WorkedToNs are when its process first and last allocated a buffer, the latter up to the
	// end of the Run.
	WorkedFromNs, WorkedToNs uint64
	// Run has their births. If the device was closed several times, it is the run with the
	// most survivors.
	Run Run
}

// A Run describes the survivors of a site while the device was open. First, Last and so on are
// IDs of buffers.
type Run struct {
	// Births counts survivors by when they were allocated. The windows go from the first
	// allocation of the site to the last of its process.
	Births [BirthWindows]uint64
	// First and Last are the first and the last allocation of the site, and Gap is the
	// longest way from one to the next.
	First, Last, Gap uint64
	// ProcessFirst and ProcessLast are the first and the last allocation of the process.
	ProcessFirst, ProcessLast uint64
	// FreedAt is the last allocation of the process before the site last freed a buffer; 0 if
	// it freed none. Outlived is how many survivors are older than a buffer that it freed.
	FreedAt, Outlived uint64
	// FreedMeanwhile is how many buffers the process freed between First and Last.
	FreedMeanwhile uint64
	// Replaceable is how many buffers from before the attach were freed on the same chips and
	// in the same region. Survivors may have taken their place.
	Replaceable uint64
}

// Total returns the number of survivors in Births.
func (r *Run) Total() (n uint64) {
	for _, births := range r.Births {
		n += births
	}
	return n
}

// SurvivorsBetween are the buffers that one call site allocated after the first of two moments
// and that survived to the second.
type SurvivorsBetween struct {
	// Survivors has no Run.
	Survivors
	// Births are the survivors by the intervals in which they were allocated, and
	// TeardownBirths those of FreedAtTeardown.
	Births, TeardownBirths []Amount
	// Replaced counts buffers that were live at the first moment and have ended. The same
	// number of survivors may have taken their place.
	Replaced Amount
}
