package phases

import (
	"path/filepath"
	"strconv"
	"strings"

	"ttmem/tracer/event"
)

// Calls finds the calls of a function in the events of a run, as a Tree finds phases: by the call stacks of
// main threads. A call begins with the first event in it, and ends before the next one outside of it.
type Calls struct {
	function string
	// Began is the number of calls so far.
	Began int
	// Functions are all functions that were seen in the user's own code.
	Functions map[string]bool

	stacks  stacks
	paths   map[*event.Stack]string // of known stacks
	running map[int]call            // by process
}

// A call is a call that did not end yet, the nth one. path has the calls that lead to it.
type call struct {
	path string
	nth  int
}

// NewCalls returns the calls of a function, which may also be a line that calls something: model.py:31.
func NewCalls(function string) *Calls {
	return &Calls{
		function: function, Functions: make(map[string]bool),
		stacks: make(stacks), paths: make(map[*event.Stack]string), running: make(map[int]call),
	}
}

// Event takes the next event. It returns which call begins with it, and which one has ended before it,
// counted from 1; 0 for none.
func (c *Calls) Event(e *event.Event) (begun, ended int) {
	now := c.running[e.PID]
	path := now.path
	if divides(e) {
		path = c.pathTo(e.Stack, path)
	} else if e.Kind == event.ProcessExit || e.Kind == event.ProcessStart {
		path = ""
	}
	if path == now.path {
		return 0, 0
	}
	ended = now.nth
	delete(c.running, e.PID)
	if path != "" {
		c.Began++
		begun = c.Began
		c.running[e.PID] = call{path, begun}
	}
	return begun, ended
}

// pathTo returns the calls that lead to the function, with its own; "" if the stack is not in it. A stack
// without calls of the user tells nothing: now remains.
func (c *Calls) pathTo(stack *event.Stack, now string) string {
	steps := c.stacks.steps(stack)
	if len(steps) == 0 {
		return now
	}
	known, ok := c.paths[stack]
	if !ok {
		var path strings.Builder
		find := func(part string, found bool) {
			if path.WriteString(part); found && known == "" {
				known = path.String()
			}
		}
		for _, one := range steps {
			line := filepath.Base(one.Call.File) + ":" + strconv.Itoa(one.Call.Line)
			find(filepath.Dir(one.Call.File)+"/"+line, line == c.function)
			find(" "+one.Function+"\n", one.Function == c.function || strings.HasSuffix(one.Function, "."+c.function))
			if one.Function != "" {
				c.Functions[one.Function] = true
			}
		}
		c.paths[stack] = known
	}
	return known
}
