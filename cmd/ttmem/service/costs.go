package service

import (
	"runtime"
	"time"

	processes "ttmem/tracer/host"
)

// Answers have the raised priority of tracing: a thread with less may hold a lock, or keep a garbage collection from
// ending, while it waits for a processor. A client whose answers take long has normal priority, so that it does not keep
// the programs of others from running.
const (
	costInterval = 10 * time.Second
	maxRaised    = time.Second // of a processor in each interval
)

// costs are the processor times of clients' answers.
type costs struct{ tally }

// during calls a function that answers a client.
func (c *costs) during(of client, answer func()) {
	if c.add(of, 0) >= maxRaised {
		processes.WithoutPriority(func() { c.measure(of, answer) })
		return
	}
	c.measure(of, answer)
}

func (c *costs) measure(of client, answer func()) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := processes.RanOfThread()
	defer func() { c.add(of, processes.RanOfThread()-before) }() // also of an answer that is given up
	answer()
}

// add adds processor time of a client, and returns its time in this interval.
func (c *costs) add(of client, took time.Duration) time.Duration {
	return time.Duration(c.tally.add(of, int64(took), costInterval, time.Now()))
}
