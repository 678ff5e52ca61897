package faults

// knownToFail are the faults that ttmem does not survive today, and why. The list may only
// shrink.
var knownToFail = map[string]string{}

var faults = []fault{
	{name: "none", do: nothing},
	// what ttmem writes to
	{name: "disk full of a recording", do: diskFullOfRecording},
	{name: "disk full of a command's recording", do: diskFullOfCommand, long: true},
	{name: "disk full for a while", do: diskFullForAWhile, long: true},
	{name: "folder removed", do: folderRemoved},
	{name: "reader of a recording gone", do: readerOfRecordingGone, long: true},
	{name: "reader of the report gone", do: readerOfReportGone},
	{name: "hung up under nohup", do: hungUp},
	{name: "interrupted again", do: interruptedAgain},
	{name: "interrupted again after a command", do: commandInterruptedAgain, long: true},
	// limits
	{name: "few descriptors", do: fewDescriptors},
	{name: "few descriptors for a command", do: limited("prlimit", "--nofile=200"), long: true},
	{name: "short files", do: shortFiles},
	{name: "short files for a command", do: limited("prlimit", "--fsize=65536"), long: true},
	{name: "little address space", do: littleAddressSpace},
	{name: "no locked memory", do: limited("prlimit", "--memlock=0"), long: true},
	{name: "little memory in a cgroup", do: littleMemory},
	{name: "few processes in a cgroup", do: fewThreads},
	{name: "little time in a cgroup", do: littleTime, long: true},
	// processes that end or change
	{name: "program ends within an attach", do: endsWithinAttach},
	{name: "process id reused", do: reusedID(false, false), long: true},
	{name: "process id reused while ttmem is stopped", do: reusedID(true, false)},
	{name: "process id reused in a container", do: reusedID(false, true), long: true},
	{name: "process id reused in a container while ttmem is stopped", do: reusedID(true, true), long: true},
	{name: "end of a program lost", do: lostExit},
	{name: "exec lost", do: lostExec, long: true},
	{name: "events of a fork lost", do: lostFork},
	{name: "program executes another one", do: execs(false), long: true},
	{name: "program executes another one while ttmem is stopped", do: execs(true)},
	{name: "another ttmem is killed", do: anotherKilled},
	{name: "library overwritten", do: overwritten},
	{name: "breakpoint set on ttmem's probe", do: breakpointAfter("set auto-solib-add off")},
	{name: "breakpoint set on ttmem's probe by a gdb that trusts files", do: breakpointAfter("set trust-readonly-sections on"), long: true},
	{name: "breakpoint set before ttmem's probe", do: breakpointBefore, long: true},
	// the host
	{name: "clock ahead in a time namespace", do: shiftedClock(true), long: true},
	{name: "clock behind in a time namespace", do: shiftedClock(false)},
	{name: "processor goes and comes", do: processorComes, long: true},
	{name: "stopped in the kernel", do: stoppedInKernel, long: true},
	// too much
	{name: "ttmem stopped while the ring fills", do: ringFills, long: true},
	{name: "a million buffers end at once", do: millionEnd, long: true},
	{name: "more call stacks than the table holds", do: moreStacks, long: true},
	{name: "programs with much code come and go", do: muchCode, long: true},
}
