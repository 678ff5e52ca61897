package event

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Limits are the figures in the text of an exception about memory, as the library counts them: 0
// and "" for those that the text does not have.
type Limits struct {
	Reason Reason
	// Region is the region that was too small. The text of some allocations does not name it.
	Region Region
	// NeededBytes is what was needed, and AvailableBytes what there was: of one bank or core or, for
	// a trace region, in total.
	NeededBytes, AvailableBytes uint64
	// Of an allocation: the requested size, and its part of each of Banks banks.
	SizeBytes, BytesPerBank uint64
	Banks                   uint32
	// Bank is the state of each bank; zero if the text does not have it.
	Bank BankState
	// Cores are the cores of circular or dataflow buffers, in the library's words, and Static their
	// kind.
	Cores  string
	Static StaticKind
	// Setting is the argument of ttnn.open_device that is too large; "" if the text is not about one.
	Setting string
}

// A BankState is the state of each bank of a region: its capacity, and what of it was allocated, free,
// and free in one piece.
type BankState struct {
	CapacityBytes    uint64 `json:"capacity_bytes_per_bank"`
	AllocatedBytes   uint64 `json:"allocated_bytes_per_bank"`
	FreeBytes        uint64 `json:"free_bytes_per_bank"`
	LargestFreeBytes uint64 `json:"largest_free_block_bytes"`
}

// bankState is the state of each bank in a text, and placeable what the allocations of other allocators
// left of it.
const (
	bankState = `, (?:but )?bank size is (?:only )?(?P<available>\d+) B(?: \(allocated: (?P<allocated>\d+) B, free: (?P<free>\d+) B, largest free block: (?P<largest>\d+) B\))?`
	placeable = `\. After subtracting [^,]*, (?P<placeable>\d+) B remained placeable across \d+ window\(s\), largest (?P<window>\d+) B`
)

// limits are the texts of exceptions about memory, of all releases: the first match decides. Groups
// have the names of figures: needed and more are added up.
var limits = []struct {
	reason Reason
	region Region
	text   *regexp.Regexp
}{
	{ReasonOutOfMemory, DRAM, text(`Not enough space to allocate (?P<size>\d+) B (?P<region>\w+) buffer across (?P<banks>\d+) banks, where each bank needs to store (?P<bank>\d+) B(?:` + bankState + `)?`)},
	{ReasonOutOfMemory, DRAM, text(`Not enough space after considering dependencies to allocate (?P<size>\d+) B (?:(?P<region>[A-Z]\w*) )?(?:buffer )?across (?P<banks>\d+) banks \((?P<bank>\d+) B per bank\)(?:` + bankState + `(?:` + placeable + `)?)?`)},
	{ReasonOutOfMemory, DRAM, text(`Out of Memory`)},

	{ReasonStaticClash, CB, text(`Statically allocated (?P<static>\w+) buffers in program \d+ clash with L1 buffers on core range (?P<cores>\[.*?\])\. L1 buffer allocated at (?P<available>\d+) and static \w+ buffer region ends at (?P<needed>\d+)`)},
	{ReasonStaticTooLarge, CB, text(`Statically allocated (?P<static>\w+) buffers on core range (?P<cores>\[.*?\]) grow to (?P<needed>\d+) B which is beyond max L1 size of (?P<available>\d+) B`)},
	{ReasonStaticTooLarge, CB, text(`(?P<static>Circular) buffers on service-core range (?P<cores>\[.*?\]) in program \d+ clash with .*\(lowest service allocation at (?P<available>\d+), CB region ends at (?P<needed>\d+)\)`)},
	{ReasonStaticTooLarge, CB, text(`(?P<static>DFB) \S+ ring size \((?P<needed>\d+) bytes\) exceeds \w+ unreserved L1 size \((?P<available>\d+) bytes\)`)},

	{ReasonTraceTooSmall, Trace, text(`Creating trace buffers of size (?P<needed>\d+) ?B on .*?, but only (?P<available>\d+) ?B is allocated for trace region`)},

	{ReasonKernelConfigTooSmall, Kernel, text(`Program size \((?P<needed>\d+)\) too large for kernel config buffer \((?P<available>\d+)\)`)},
	{ReasonKernelConfigTooSmall, Kernel, text(`Kernel binary size exceeds prefetcher cache size \((?P<needed>\d+), (?P<available>\d+)\)`)},
	{ReasonKernelConfigTooSmall, Kernel, text(`the union program's kernel config does not fit`)},

	{ReasonRefused, L1, text(`\b(?:requires?|needs?|need at least) ~?(?P<needed>\d+) (?:B|bytes)\b(?: dest \+ (?P<more>\d+) B source)?[^;\n]*?(?:only|have|budget) (?P<available>\d+)\b`)},
	{ReasonRefused, L1, text(`(?P<needed>\d+) (?:B|bytes)(?: \+ [^\d+]*(?P<more>\d+) B)?(?: \+ [^\d+]*(?P<more2>\d+) B)?(?: for \d+ tiles)?\)?[^\d;\n]*(?:exceeds?|(?:does|would) not fit)(?:L1|[^\d;\n])*(?:L1|bank|budget)(?:L1|[^\d;\n])*(?P<available>\d+) B`)},
	{ReasonRefused, L1, text(`circular buffer size to (?P<needed>\d+)\. This is larger than .* L1 buffer bank size of (?P<available>\d+) B`)},
	{ReasonRefused, L1, text(`stick_nbytes=(?P<needed>\d+) exceeds l1_for_cb=(?P<available>\d+)`)},
	{ReasonRefused, L1, text(`free L1 \((?P<available>\d+) B\) too small for reservations \((?P<needed>\d+) B\)`)},
	{ReasonRefused, L1, text(`a (?P<needed>\d+)-byte .*CB slot does not fit in free L1`)},
	{ReasonRefused, L1, text(`L1 arena is out of memory: cannot place (?P<needed>\d+) bytes`)},
	{ReasonRefused, L1, text(`(?P<worker>Worker L1) size (?P<needed>\d+) is larger than max size (?P<available>\d+)`)},
	{ReasonRefused, L1, text(`(?P<small>Reserved size) must be less than bank size`)},
	{ReasonRefused, L1, text(`fits? L1.*\(budget (?P<available>\d+) B`)},
	{ReasonRefused, L1, text(`Workload of Tiles .* exceeds L1 capacity (?P<available>\d+)`)},
	{ReasonRefused, L1, text(`slic.*Available L1: (?P<available>\d+) bytes`)},
	{ReasonRefused, L1, text(`(?i)\b(?:cannot|not|n't) fit\b.*\bL1\b|\bL1 (?:capacity|budget|memory)\b.*\b(?:exceed|too )|\bexceed\w*\b.*\b(?:free|available|usable|max) L1\b|\bnot enough (?:L1|DRAM|circular buffer memory|memory)\b`)},
}

func text(pattern string) *regexp.Regexp { return regexp.MustCompile(pattern) }

// notLimits are texts that mention memory, and are not about too little of it.
var notLimits = text(`(?i)memory (?:layout|config)`)

// LimitsIn parses the text of an exception. It returns false if the exception is not about memory or
// its limits.
func LimitsIn(message string) (l Limits, ok bool) {
	message = Info(message)
	for _, one := range limits {
		m := one.text.FindStringSubmatch(message)
		if m == nil || len(m) == 1 && one.reason == ReasonRefused && notLimits.MatchString(message) {
			continue
		}
		l := Limits{Reason: one.reason, Region: one.region}
		for i, name := range one.text.SubexpNames() {
			l.set(name, m[i])
		}
		return l, true
	}
	return l, false
}

func (l *Limits) set(group, value string) {
	if value == "" {
		return // the text does not have it
	}
	n, _ := strconv.ParseUint(value, 10, 64) // the groups of figures are digits; too many mean 0
	switch group {
	case "needed", "more", "more2":
		if l.NeededBytes += n; l.NeededBytes < n {
			l.NeededBytes = 0
		}
	case "available":
		l.AvailableBytes = n
	case "allocated":
		l.Bank = BankState{CapacityBytes: l.AvailableBytes, AllocatedBytes: n}
	case "free", "placeable":
		l.Bank.FreeBytes = n
	case "largest", "window":
		l.Bank.LargestFreeBytes = n
	case "size":
		l.SizeBytes = n
	case "bank":
		l.BytesPerBank, l.NeededBytes = n, n
	case "banks":
		if n <= 1<<16 {
			l.Banks = uint32(n)
		}
	case "region":
		if i := slices.Index(regionNames[:BankedRegions], value); i >= 0 {
			l.Region = Region(i)
		}
	case "cores":
		l.Cores = value
	case "worker":
		l.Setting = "worker_l1_size"
	case "small":
		l.Setting = "l1_small_size"
	case "static":
		l.Static = CircularBuffer
		if value == "dataflow" || value == "DFB" {
			l.Static = DataflowBuffer
		}
	}
}

// Info returns the text of an exception without the place of the throw before it, and the library's
// stack after it.
func Info(message string) string {
	if _, after, ok := strings.Cut(message, "info:\n"); ok {
		message = after
	}
	message, _, _ = strings.Cut(message, "\nbacktrace:")
	return strings.TrimSpace(message)
}
