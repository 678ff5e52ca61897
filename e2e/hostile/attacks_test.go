package hostile

import (
	"slices"
	"strings"
	"time"
)

// attack is an attack by a program that an ordinary user runs.
type attack struct {
	name string
	user int
	// program is one of ./programs, with arguments. It prints "attacking", and goes on until
	// it is killed.
	program string
	// aims says what it wants to achieve.
	aims string
	// hold is how long it attacks, 0 for the usual time.
	hold time.Duration
	// newcomer starts another program meanwhile, which is to be discovered.
	newcomer bool
	// names shows all live pages meanwhile, which contain the attacker's names, and doctor what
	// `ttmem doctor` says of the attacker's library.
	names, doctor bool
	// flat compares the tracers' memory in the first and the second half.
	flat bool
	// long is for the long form only.
	long bool
	// settled begins when a service no longer waits with answers for memory to be read.
	settled bool
	// restart ends the tracers after it, and checks how they end; unended does so while the
	// attack goes on.
	restart, unended bool
	// ended checks that a process of another user, which ended before, is still known.
	ended bool
	// searched has so many buffers that root's answers about the whole host wait for the search of their owners.
	searched bool
	// log ends reading the tracers' logs meanwhile: the pipe is "full", or the reader "gone".
	log string
}

// isAttack reports whether there is an attack of that name, in this table or another one.
func isAttack(name string) bool {
	if kind, ok := strings.CutPrefix(name, "names in "); ok {
		return views[kind] != nil
	}
	if output, ok := strings.CutPrefix(name, "symlink at "); ok {
		return slices.ContainsFunc(outputs, func(o rootOutput) bool { return o.name == output })
	}
	if strings.HasPrefix(name, "variable ") {
		return true // TestEnvironment names them by what they are
	}
	return slices.ContainsFunc(attacks, func(a attack) bool { return a.name == name })
}

// knownToFail are the attacks that succeed today, and why. The list may only shrink.
var knownToFail = map[string]string{}

var attacks = []attack{
	{name: "none", program: "nothing.py", aims: "nothing: the rig itself passes", restart: true},
	// files that block
	{name: "leased file", program: "files.py leased_file", aims: "opening a mapped file waits for a lease", newcomer: true},
	{name: "leased library", program: "files.py leased_library", aims: "opening a library waits for a lease", long: true, newcomer: true},
	{name: "leased beside library", program: "files.py leased_beside_library", aims: "reading code for stacks waits for a lease", long: true},
	{name: "FIFO at path", program: "files.py fifo_at_path", aims: "opening a library by its path waits for a writer"},
	{name: "FIFO as package", program: "files.py fifo_as_package", aims: "looking for the release waits for a writer"},
	// files that change
	{name: "overwritten", program: "files.py overwritten", aims: "probes in other instructions; others' libraries withdrawn"},
	{name: "deleted", program: "files.py deleted", aims: "reading a file without a name", hold: time.Second, long: true},
	{name: "truncated", program: "files.py truncated", aims: "reading past the end of a file"},
	{name: "resized", program: "files.py resized", aims: "reading a file with a size that was true before", long: true},
	{name: "many libraries", program: "files.py many_libraries 8", aims: "deriving layouts holds up events", hold: 3 * time.Second, long: true, newcomer: true},
	{name: "library slots", program: "files.py many_libraries 70", aims: "the table of libraries is full for others", hold: 20 * time.Second, long: true, newcomer: true},
	{name: "many files", program: "files.py many_files", aims: "reading files holds up events; the cache of files grows", newcomer: true},
	{name: "sparse library", program: "files.py sparse_library", aims: "reading a terabyte", long: true},
	{name: "socket at path", program: "files.py socket_at_path", aims: "opening what is no file", long: true},
	// the service's socket
	{name: "pipelines", program: "service.py pipelines", aims: "requests that wait in a connection take memory", long: true},
	{name: "profiles", program: "service.py profiles", aims: "profiles of minutes take memory", hold: 3 * time.Second, restart: true, long: true},
	{name: "half-open clients", program: "service.py half_open", aims: "connections for others run out"},
	{name: "slow clients", program: "service.py slow", aims: "answers wait for slow readers", long: true},
	{name: "unread streams", program: "service.py unread", aims: "what nobody reads fills memory"},
	{name: "streams", program: "service.py streams", user: 1, aims: "commands that begin and end in a loop take all of the processor"},
	{name: "opened files", program: "service.py opened", user: 1, aims: "files that a client has open are no libraries, and opening them waits; it starts more commands than are prepared for"},
	{name: "busy clients", program: "service.py busy", aims: "answers take all of the processor"},
	{name: "request flood", program: "service.py flood", aims: "answers of all kinds wait for one user's", hold: 2 * time.Second},
	{name: "garbage clients", program: "service.py garbage", aims: "parsing of requests; descriptors run out"},
	{name: "endless headers", program: "service.py endless_header", aims: "reading headers takes memory"},
	{name: "marks", program: "service.py marks", user: 1, aims: "marks of others are dropped; names in lists", restart: true},
	{name: "searches", program: "service.py owners", user: 1, aims: "searches for owners take all of the processor"},
	{name: "searches of streams", program: "service.py owners_of_streams", user: 1, aims: "searches at marks and peaks that many streams want take all of the processor"},
	// processes
	{name: "executes", program: "processes.py executes", aims: "tables of code grow with each exec", hold: 6 * time.Second, long: true, flat: true, newcomer: true},
	{name: "short-lived", program: "processes.py short_lived", aims: "processes that are gone when they are read", newcomer: true},
	{name: "reused ids", program: "processes.py reused_ids", aims: "what is known of an ended process is taken for another's", hold: 10 * time.Second, long: true},
	{name: "fork bomb", program: "processes.py fork_bomb", aims: "tables of processes are full"},
	{name: "threads", program: "processes.py threads", aims: "names of threads in lists; their memory"},
	{name: "first thread ends", program: "processes.py first_thread_ends", aims: "a process whose files in /proc are empty"},
	{name: "many mappings", program: "processes.py many_mappings", aims: "reading mappings takes all of the processor", hold: time.Second},
	{name: "mapping loop", program: "processes.py mapping_loop", aims: "records of mappings are lost, and others' with them", hold: time.Second, long: true, newcomer: true},
	{name: "long command", program: "processes.py long_command", aims: "a command line of megabytes in each answer"},
	{name: "generated code", program: "processes.py generated_code", aims: "reading code again for each change", long: true},
	{name: "ended processes", program: "processes.py short_runs 40 0.3", aims: "ended processes of others leave the report", hold: 3 * time.Second, ended: true},
	{name: "ended at once", program: "processes.py short_runs 40 0", aims: "the same by processes that are gone before they are read", hold: 2 * time.Second, ended: true, long: true},
	{name: "vfork child", program: "processes.py vfork_child", aims: "two processes in one address space", long: true},
	{name: "stopped", program: "processes.py stopped", aims: "waiting for a process that does not run", long: true},
	{name: "debugged", program: "processes.py ptraced", aims: "the end waits for a process that a debugger has stopped", restart: true},
	{name: "setuid", program: "processes.py setuid", aims: "processes whose rights change while they are read", newcomer: true, long: true},
	{name: "crowd of threads", program: "processes.py crowd", aims: "the kernel's table of threads is full for others", newcomer: true, long: true},
	{name: "unmounted", program: "processes.py unmounted", aims: "reading a library that no path leads to", long: true},
	// ids of a range in /etc/subuid
	{name: "subordinate clients", program: "subordinate.py 12 service.py half_open", aims: "connections for others run out", hold: time.Second},
	{name: "subordinate requests", program: "subordinate.py 12 service.py busy", aims: "answers take all of the processor", long: true},
	{name: "subordinate marks", program: "subordinate.py 12 service.py marks", aims: "marks of others are dropped", restart: true, long: true},
	{name: "subordinate processes", program: "subordinate.py 6 processes.py short_runs 5 0.3 shared", aims: "ended processes of others leave the report; lines fill the log", hold: 3 * time.Second, ended: true},
	{name: "subordinate buffers", program: "subordinate.py 6 probes.py buffer_flood", aims: "live buffers fill the tracer's memory", hold: 8 * time.Second, long: true, searched: true, restart: true},
	// code that is read for stacks
	{name: "sparse .eh_frame", program: "elf.py sparse_frames", aims: "tables of 250 MiB are read into memory", hold: 2 * time.Second, restart: true},
	{name: "dense .eh_frame", program: "elf.py dense_frames", aims: "unwind tables fill memory and the kernel's table", hold: 2 * time.Second, long: true},
	{name: "huge tables", program: "elf.py huge_tables", aims: "claimed sizes of tables are believed", hold: time.Second, long: true, restart: true},
	{name: "headers", program: "elf.py headers", aims: "headers that contradict themselves", restart: true, long: true},
	{name: "damaged files", program: "elf.py damaged", aims: "parsers of ELF files", hold: 2 * time.Second, restart: true, long: true},
	{name: "damaged library", program: "elf.py damaged_library", aims: "deriving a layout from damaged code", hold: 3 * time.Second, long: true},
	// calls that never happened
	{name: "unreadable objects", program: "probes.py unreadable", aims: "losses of one process count for all"},
	{name: "unknown types", program: "probes.py unknown_types", aims: "values that the library does not have", long: true},
	{name: "absurd sizes", program: "probes.py absurd_sizes", aims: "sums that overflow", long: true},
	{name: "allocation flood", program: "probes.py alloc_flood", aims: "the ring buffer is full for others", hold: 2 * time.Second, long: true, restart: true, newcomer: true},
	{name: "buffer flood", program: "probes.py buffer_flood", aims: "live buffers fill the tracer's memory", hold: 8 * time.Second, long: true, searched: true, restart: true},
	{name: "program ids", program: "probes.py program_ids", aims: "programs fill the tracer's memory", hold: 3 * time.Second, restart: true},
	{name: "wide buffers", program: "probes.py wide_buffers", aims: "each core of each circular buffer costs memory and time", hold: 2 * time.Second, restart: true},
	{name: "claimed chips", program: "probes.py claimed_chips", aims: "thousands of chips in each answer, and in each series", hold: time.Second, restart: true},
	{name: "allocator flood", program: "probes.py allocator_flood", aims: "the kernel's table of allocators is full for others", hold: 2 * time.Second, long: true, restart: true, newcomer: true},
	{name: "program flood", program: "probes.py program_flood", aims: "the kernel's table of programs is full for others", hold: 5 * time.Second, long: true, newcomer: true},
	{name: "stack flood", program: "probes.py stack_flood", aims: "the kernel's table of stacks is full for others", hold: 5 * time.Second, long: true, newcomer: true},
	{name: "chips", program: "probes.py chips", aims: "thousands of chips in each answer", hold: time.Second, restart: true, long: true},
	{name: "cores", program: "probes.py cores", aims: "circular buffers on four billion cores", restart: true, long: true},
	{name: "thrown", program: "probes.py thrown", aims: "messages of failures; what lies on the stack", restart: true, long: true},
	{name: "forged identity", program: "probes.py forged_identity", aims: "children with their parent's addresses", long: true},
	{name: "thread flood", program: "probes.py thread_flood", aims: "state of threads in the kernel; names", long: true, newcomer: true},
	// memory that is read after an attach
	{name: "many allocators", program: "heap.py many_allocators", settled: true, aims: "N allocators with N regions", hold: 3 * time.Second, long: true},
	{name: "huge set", program: "heap.py huge_set", settled: true, aims: "claims of millions of elements are believed", hold: 2 * time.Second, long: true, restart: true},
	{name: "full set", program: "heap.py full_set", settled: true, aims: "millions of buckets of one node", hold: 2 * time.Second, long: true, restart: true},
	{name: "huge free list", program: "heap.py huge_free_list", settled: true, aims: "claims of millions of blocks are believed", hold: 2 * time.Second, long: true},
	{name: "many meshes", program: "heap.py many_meshes", settled: true, aims: "each word of memory seems to be a device", hold: 2 * time.Second, long: true},
	{name: "late chips", program: "heap.py many_chips", settled: true, aims: "meshes of thousands of chips", hold: 2 * time.Second, long: true},
	{name: "changing objects", program: "heap.py changing", settled: true, aims: "reading again and again", hold: time.Second, long: true},
	{name: "endless memory", program: "heap.py endless", settled: true, aims: "reading memory without end", hold: 2 * time.Second, long: true},
	{name: "late at start", program: "heap.py huge_set", aims: "answers wait for memory that is read", restart: true, long: true},
	// memory that never comes
	{name: "silent heap", program: "fuse.py late", settled: true, aims: "a read of memory that does not return, and that the end waits for", hold: time.Second, unended: true},
	{name: "silent program", program: "fuse.py program", aims: "a read at an event that does not return", hold: time.Second, restart: true},
	{name: "silent command line", program: "fuse.py command_line", aims: "reading a command line does not return", long: true},
	{name: "silent interpreter", program: "fuse.py interpreter", aims: "reading an interpreter's state does not return", hold: time.Second, long: true, restart: true},
	{name: "silent code", program: "fuse.py code", aims: "reading code for stacks does not return", unended: true, newcomer: true},
	{name: "silent overlay", program: "fuse.py overlay", aims: "the same below an overlay, which reads as its user", unended: true, newcomer: true},
	// logs
	{name: "full log", program: "processes.py short_runs", aims: "a log that nobody reads stops tracing, and the end", log: "full"},
	{name: "log without a reader", program: "processes.py short_runs", aims: "a log whose reader is gone ends tracers without their files", log: "gone"},
	// names
	{name: "process names", program: "names.py process", aims: "escape sequences in names and command lines", names: true},
	{name: "library path", program: "names.py path", aims: "escape sequences in paths", long: true, names: true, doctor: true},
	{name: "release name", program: "names.py release", aims: "escape sequences in releases", names: true, doctor: true, long: true},
	{name: "foreign release", program: "names.py foreign_release", aims: "reading a folder that the user cannot read", restart: true, long: true},
	{name: "costly closes", program: "costly.py closes", aims: "the end of a device looks at all live buffers", hold: 8 * time.Second, long: true, searched: true, restart: true},
	{name: "costly replays", program: "costly.py replays", aims: "a replay looks at all programs of a trace", hold: 8 * time.Second, long: true, restart: true},
	{name: "costly replays on many chips", program: "costly.py replays 3000 200", aims: "a replay looks at all programs of a trace on all chips", hold: 3 * time.Second, restart: true},
	{name: "costly traces", program: "costly.py traces", aims: "a run looks at all traces", hold: 6 * time.Second, long: true, restart: true},
	{name: "costly banks", program: "costly.py banks", aims: "capacities of all chips by all allocators", hold: 8 * time.Second, long: true, restart: true},
	{name: "costly kernels", program: "costly.py kernels", aims: "chips of a program are compared with each other", hold: 6 * time.Second, long: true, restart: true},
	{name: "costly compiled programs", program: "costly.py compiled", aims: "a list of programs is searched", hold: 6 * time.Second, long: true, restart: true},
	{name: "costly buffers", program: "costly.py buffers", aims: "buffers on 256 chips", hold: 3 * time.Second, searched: true, restart: true},
	{name: "costly programs", program: "costly.py programs", aims: "runs on 256 chips", hold: 6 * time.Second, long: true, restart: true},
	{name: "costly clears", program: "costly.py clears", aims: "changes while memory is read fill the tracer's memory", hold: 20 * time.Second, long: true, restart: true},
	{name: "Python names", program: "names.py python_frames", aims: "escape sequences in functions and files", names: true},
	{name: "native names", program: "names.py native_frames", aims: "escape sequences in symbols", names: true, long: true},
	{name: "Python lies", program: "names.py python_lies", aims: "lengths that are not true, frames without end"},
	{name: "code flood", program: "names.py code_flood", aims: "the kernel's table of Python's code is full for others", hold: 30 * time.Second, long: true, newcomer: true},
	{name: "environment", program: "names.py environment", aims: "variables that ttmem knows", long: true},
}
