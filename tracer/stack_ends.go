package tracer

// How a stack ends where nothing went wrong.
const (
	CompleteStack  = "at the thread's start"
	NoPython       = "no Python"
	CompletePython = "at the outermost Python frame"
)

// stackEnds are the ways in which a stack can end, in the order of
// bpf/src/unwind.h: of the native part, then of Python's.
var stackEnds = [...]string{
	CompleteStack,
	"more than 128 frames",
	"process not known yet",
	"address in no known code",
	"code without unwind rows",
	"unwind row of another register",
	"frames out of order",
	"stack memory not readable",
	"table of stacks full",
	"ring buffer full",
	"no memory for a thread's state",
	NoPython,
	CompletePython,
	"more than 128 Python frames",
	"forked process not known yet",
	"Python frame not readable",
	"Python frame makes no sense",
	"table of stacks full (Python)",
	"ring buffer full (Python)",
}

// nativeEnds is the number of ways in which the native part can end.
const nativeEnds = 11

// countEnds counts the stacks that were taken by how their native part and their
// Python part ended.
func countEnds(objs *objects) (native, python map[string]uint64) {
	native, python = make(map[string]uint64), make(map[string]uint64)
	for i, name := range stackEnds {
		var perCPU []uint64
		if objs.StackEnds.Lookup(uint32(i), &perCPU) != nil {
			continue
		}
		var n uint64
		for _, k := range perCPU {
			n += k
		}
		switch {
		case n == 0:
		case i < nativeEnds:
			native[name] = n
		default:
			python[name] = n
		}
	}
	return native, python
}
