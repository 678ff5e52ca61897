package main

import (
	"slices"
	"strings"
)

// A goldenStory is a program that was recorded, and what is asked of the recording.
type goldenStory struct {
	name string
	// commands have FILE where the recording is named, and PID1, PID2 and so on for its
	// processes.
	commands []goldenCommand
}

// storyCheckpoint is how many events there are between two checkpoints of a recording that
// has many.
const storyCheckpoint = 200

// goldenRules name components of the models, for --rules model.rules.
const goldenRules = `story_model\.py:\d+ .*\bAttention\b|dump\.py:\d+ forward -> attention
(\w+)\.py:\d+ forward -> $1
dump\.py:\d+ -> setup
`

// goldenStories are made by TestRecordStories of e2e, which has the programs.
var goldenStories = []goldenStory{
	// One line keeps a tensor for each token, beside weights, a cache that is filled once
	// and temporaries; each token is a mark. Closing the device frees everything.
	{"leak", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		{name: "leaks_marks", args: "leaks FILE --from token#5 --to token#25"},
		// stacks that a checkpoint is between are counted apart; the fourth and the fifth
		// have the same size and name, and no order
		{name: "dump_mark", args: "dump FILE --at token#30 --by stack -n 3"},
		{name: "dump_file", args: "dump FILE --at token#30 --by file"},
		{name: "dump_component", args: "dump FILE --at token#30 --by component --rules model.rules"},
		{name: "diff", args: "diff repaired.ttmem FILE"},
		{name: "diff_marks", args: "diff FILE --from token#10 --to token#20"},
		{name: "diff_peak", args: "diff repaired.ttmem FILE --at peak --by op"},
		{name: "leaks_within", args: "leaks FILE --within forward"},
		{name: "diff_within", args: "diff FILE --within forward"},
		{name: "dump_within", args: "dump FILE --within forward#3 --to token#20"},
		{name: "map_mark", args: "map FILE --at token#15 --region DRAM -n 5"},
		{name: "map", args: "map FILE -n 5", form: goldenText}, // its story, when all of the leak is live
		{name: "dump_story", args: "dump FILE --at story --by line -n 4", form: goldenText},
		{name: "log_leak", args: `log FILE --grep story_leak\.py:21 --kind alloc -n 3`},
		{name: "log_stacks", args: `log FILE --grep story_leak\.py:21 --kind free -n 2 --stacks`, form: goldenText},
		{name: "log_marks", args: "log FILE --kind mark,process_start,process_exit,device_open,device_close"},
		{name: "log_between", args: "log FILE --from token#5 --to token#8 --kind mark", form: goldenText},
		pprof, peakJSON, queries,
	})},
	// The same program without that line.
	{"repaired", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		{name: "diff", args: "diff leak.ttmem FILE --by op"},
	})},
	// The last few results are kept by turns, and others are replaced: nothing leaks.
	{"ring", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		dumpPeakJSON, folded,
		{name: "oom", args: "oom FILE"},
		{name: "log_reuse", args: "log FILE --kind reuse -n 5"},
		{name: "log_from", args: "log FILE --from 0.21s --to 0.22s -n 20", form: goldenText},
		{name: "dump_time", args: "dump FILE --at 0.25s"},
		{name: "diff_times", args: "diff FILE --from 0.21s --to 0.25s"},
	})},
	// Each shape is another program in the program cache, with tensors of its own.
	{"cache", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		{name: "dump_op", args: "dump FILE --at peak --by op"},
		{name: "log_reuse", args: "log FILE --kind reuse -n 5"},
		{name: "log_kernels", args: "log FILE --kind kernel_load,kernel_unload -n 6"},
		{name: "peak_op", args: "peak FILE --by op --region L1", uneven: true},
	})},
	// L1 is fragmented, then circular buffers overlap a tensor, and the program dies.
	{"fragments", slices.Concat(commonCommands, []goldenCommand{
		{name: "oom", args: "oom FILE"},
		{name: "oom_last", args: "oom FILE -n 1", form: goldenText},
		{name: "oom_without", args: "oom FILE --without story_fragments.py:30"},
		{name: "oom_without_few", args: "oom FILE --without story_fragments.py:50", form: goldenText},
		{name: "oom_changes", args: "oom FILE --on p150 --move story_fragments.py:36:DRAM --first story_fragments.py:50 --clear-program-cache-at story_fragments.py:47"},
		{name: "oom_move", args: "oom FILE --move story_fragments.py:42:DRAM", form: goldenText},
		{name: "map_failure", args: "map FILE --at failure#1 --region L1"},
		{name: "map_clash", args: "map FILE --at failure --region L1 -n 0", form: goldenText},
		{name: "dump_failure", args: "dump FILE --at failure#1 --by stack"},
		{name: "log_failures", args: "log FILE --kind alloc_failed"},
		{name: "diff_failures", args: "diff FILE --from failure#1 --to failure#2"},
		peakJSON, queries,
	})},
	// Two peaks inside of operations: of DRAM, and of L1 with circular buffers.
	{"peak", slices.Concat(commonCommands, []goldenCommand{
		dumpPeakJSON, peakJSON, folded, pprof, events,
		{name: "peak_op", args: "peak FILE --by op", uneven: true, form: goldenText},
		{name: "peak_type", args: "peak FILE --by type --region L1", uneven: true, form: goldenText},
		{name: "dump_peak_l1", args: "dump FILE --at peak --region L1 --region CB --by op"},
		{name: "diff_peak", args: "diff FILE --from begin --to peak"},
		{name: "dump_size", args: "dump FILE --at peak --by size"},
		{name: "log", args: "log FILE", form: goldenText},
		{name: "log_programs", args: "log FILE --kind cb_alloc,cb_free -n 3"},
		{name: "phases", args: "phases FILE --depth 1"},
		{name: "ops", args: "ops FILE"}, // this story is from before runs were recorded
	})},
	// Captured traces, of e2e/programs/traces.py on a simulated chip that executes programs: a mock cannot
	// replay them. This story and the next one are recorded by hand.
	{"traces", slices.Concat(commonCommands, []goldenCommand{
		queries,
		{name: "log", args: "log FILE"},
		{name: "phases", args: "phases FILE", form: goldenText},
		{name: "log_replays", args: "log FILE --kind trace_replay --stacks", form: goldenText},
		{name: "ops", args: "ops FILE"},
	})},
	// A sub-device manager takes a part of L1, of e2e/programs/sub_devices.py.
	{"sub_devices", slices.Concat(commonCommands, []goldenCommand{
		{name: "oom", args: "oom FILE"},
		{name: "log", args: "log FILE"},
		{name: "dump_failure", args: "dump FILE --at failure"},
		{name: "map_failure", args: "map FILE --at failure --region L1"},
	})},
	// The device is opened and closed four times.
	{"reopen", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		dumpPeakJSON, folded, events,
		{name: "log", args: "log FILE", form: goldenText},
		{name: "log_device", args: "log FILE --kind device_open,device_close,process_start,process_exit"},
		{name: "dump_begin", args: "dump FILE --at begin"},
		{name: "map_begin", args: "map FILE --at begin"},
	})},
	// Every reason for which an allocation can fail; SIGKILL ends the process.
	{"killed", slices.Concat(commonCommands, []goldenCommand{
		{name: "oom", args: "oom FILE"},
		{name: "oom_small", args: "oom FILE -n 3", form: goldenText},
		{name: "oom_set", args: "oom FILE --set l1_small_size=64KiB"},
		{name: "map_failure", args: "map FILE --at failure#4 -n 4"},
		{name: "dump_failure", args: "dump FILE --at failure --by file"},
		{name: "log_exit", args: "log FILE --kind process_start,process_exit,alloc_failed -n 4"},
	})},
	// A mesh of eight chips with submeshes, each with an allocator of its own.
	{"mesh", slices.Concat(commonCommands, []goldenCommand{
		dumpPeakJSON, peakJSON, folded, queries,
		{name: "log", args: "log FILE", form: goldenText},
		{name: "dump_by_chip", args: "dump FILE --at peak --by chip"},
		{name: "dump_chip", args: "dump FILE --at peak --chip 6"},
		{name: "peak_chip", args: "peak FILE --chip 3 --by chip", uneven: true},
		{name: "map_chip", args: "map FILE --at peak --chip 0,5 --region L1"},
		{name: "diff_by_chip", args: "diff FILE --from begin --to peak --by chip"},
		{name: "no_such_chip", args: "dump FILE --at peak --chip 9", form: goldenText},
	})},
	// A small model on two chips.
	{"chips", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		peakJSON,
		{name: "oom", args: "oom FILE"},
		{name: "dump_type", args: "dump FILE --at peak --by type"},
		{name: "diff_op", args: "diff FILE --from begin --to peak --by op"},
		{name: "dump_grep", args: `dump FILE --at peak --grep demo\.py:16 -n 5`},
	})},
	// All layouts and regions, programs with buffers inside of shards, a failure, and a
	// program cache that is cleared, of an older release.
	{"mix", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		dumpPeakJSON, folded, pprof,
		{name: "oom", args: "oom FILE"},
		{name: "dump_l1", args: "dump FILE --at 0.35s --region L1", form: goldenText},
		{name: "log_programs", args: "log FILE --kind cb_alloc,cb_free,kernel_load,kernel_unload -n 12", form: goldenText},
		{name: "ops", args: "ops FILE -n 5"},
		{name: "log_small", args: "log FILE --region L1_SMALL --region CB --kind alloc,free", form: goldenText},
	})},
	// A small transformer, whose programs run again from the program cache.
	{"inference", slices.Concat(commonCommands, []goldenCommand{
		{name: "ops", args: "ops FILE"},
		{name: "phases", args: "phases FILE"},
		{name: "ops_last", args: "ops FILE --from 3.465s -n 3"},
		{name: "ops_within", args: "ops FILE --within small_transformer.py:54 -n 3"},
		{name: "peak_within", args: "peak FILE --within result"},
		{name: "dump_within", args: "dump FILE --within __init__ --by line"},
		{name: "no_such_function", args: "peak FILE --within fowrard", form: goldenText},
		queries,
	})},
	// Four processes share a chip: one holds memory, one ends and two crash.
	{"crowd", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		folded,
		{name: "report_process", args: "report FILE -p PID2"},
		{name: "dump_process", args: "dump FILE --at peak --by process"},
		{name: "dump_one", args: "dump FILE --at peak -p PID2 --by stack"},
		{name: "peak_process", args: "peak FILE --by process", uneven: true, form: goldenText},
		{name: "map_process", args: "map FILE --at peak -p PID1 -n 3"},
		{name: "log_exit", args: "log FILE --kind process_start,process_exit,device_open"},
		{name: "diff_process", args: "diff FILE --from begin --to peak -p PID2 --by region"},
	})},
	// A busy program is attached to late; recording ends while it runs.
	{"late", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		{name: "oom", args: "oom FILE", form: goldenText},
		peakJSON,
		{name: "dump", args: "dump FILE"},
		{name: "map", args: "map FILE", uneven: true},
		{name: "dump_begin", args: "dump FILE --at begin", form: goldenText},
		{name: "log_first", args: "log FILE --to 0.1s", form: goldenText},
		{name: "diff", args: "diff FILE --from 0.2s --to end --by op"},
	})},
	// A model is held when recording ends; the device was open when it began.
	{"held", slices.Concat(commonCommands, leakCommands, []goldenCommand{
		dumpPeakJSON, events, folded,
		{name: "dump", args: "dump FILE"},
		{name: "dump_type", args: "dump FILE --by type"},
		{name: "dump_component", args: "dump FILE --by component --rules model.rules"},
		{name: "map", args: "map FILE"},
		{name: "log", args: "log FILE", form: goldenText},
		{name: "diff_op", args: "diff FILE --from begin --to end --by op"},
	})},
	// Buffers of each class, of e2e/programs/classes.py on a simulated chip that executes programs: a mock
	// has no binaries of kernels. These two are recorded by hand.
	{"classes", slices.Concat(commonCommands, []goldenCommand{
		{name: "oom", args: "oom FILE"},
		pprof, queries, peakJSON, dumpPeakJSON,
		{name: "dump_class", args: "dump FILE --at 1s --by class"},
		{name: "dump_by_op", args: "dump FILE --at 1s --by op"},
		{name: "dump_grep", args: "dump FILE --at 1s --grep binaries", form: goldenText},
		{name: "peak_class", args: "peak FILE --by class", uneven: true, form: goldenText},
		{name: "diff", args: "diff FILE --from begin --to peak --by class"},
		{name: "diff_stack", args: "diff FILE --from begin --to peak", form: goldenText},
		{name: "log_alloc", args: "log FILE --kind alloc"},
	})},
	// The same program, found by a late attach: its classes are those of owners.
	{"classes_late", slices.Concat(commonCommands, []goldenCommand{
		{name: "dump", args: "dump FILE"},
		{name: "dump_class", args: "dump FILE --by class"},
		{name: "peak_class", args: "peak FILE --by class", uneven: true, form: goldenText},
		{name: "diff", args: "diff classes.ttmem FILE --at peak --by class"},
	})},
	// What the service recorded: two processes, one after the other, and marks with names.
	{"marks", slices.Concat(commonCommands, []goldenCommand{
		{name: "leaks_marks", args: "leaks FILE --from first --to last"},
		{name: "dump_mark", args: "dump FILE --at holed"},
		{name: "map_mark", args: "map FILE --at holed"},
		{name: "diff_marks", args: "diff FILE --from first --to last"},
		{name: "no_such_mark", args: "dump FILE --at warm", form: goldenText},
		{name: "report_process", args: "report FILE -p PID1", form: goldenText},
		{name: "log_marks", args: "log FILE --kind mark"},
		{name: "log_hole", args: "log FILE --region DRAM --kind reuse"},
	})},
}

// commonCommands are asked of every story.
var commonCommands = []goldenCommand{
	{name: "report", args: "report FILE"},
	{name: "top", args: "top --once FILE", form: goldenText, piped: true},
	{name: "dump_peak", args: "dump FILE --at peak", form: goldenText},
	{name: "map_peak", args: "map FILE --at peak"},
	// its timeline is as fine as the notes of the recording
	{name: "peak", args: "peak FILE", form: goldenText, uneven: true},
	{name: "leaks", args: "leaks FILE"},
	{name: "log_last", args: "log FILE -n 12", form: goldenText},
	{name: "log_three", args: "log FILE -n 3", form: goldenJSON},
}

// leakCommands are asked of stories that leak, or may seem to.
var leakCommands = []goldenCommand{
	{name: "diff_left", args: "diff FILE --from begin --to left --by op"},
	{name: "leaks_file", args: "leaks FILE --by file", form: goldenText},
}

// The commands that some stories share.
var (
	dumpPeakJSON = goldenCommand{name: "dump_peak", args: "dump FILE --at peak", form: goldenJSON}
	events       = goldenCommand{name: "events", args: "log FILE --json", form: goldenText}
	folded       = goldenCommand{name: "folded", args: "export FILE --to folded -o out", form: goldenText, exported: whole}
	pprof        = goldenCommand{name: "pprof", args: "export FILE --to pprof -o out", form: goldenText, exported: pprofText}
	queries      = goldenCommand{name: "sqlite", args: "export FILE --to sqlite -o out", form: goldenText, exported: answers}
	peakJSON     = goldenCommand{name: "peak", args: "peak FILE", form: goldenJSON, uneven: true}
)

// argsFor are the arguments of a command for a story whose processes have these ids.
func (c *goldenCommand) argsFor(story string, pids []string) []string {
	names := []string{"FILE", story + ".ttmem"}
	for i, pid := range pids {
		names = append(names, "PID"+string(rune('1'+i)), pid)
	}
	return strings.Fields(strings.NewReplacer(names...).Replace(c.args))
}
