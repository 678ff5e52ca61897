package service

import (
	"runtime"
	"sync"
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
type costs struct {
	mu    sync.Mutex
	until time.Time // the end of the interval
	by    map[client]time.Duration
}

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
	before := processes.TimeOfThread().Ran
	answer()
	c.add(of, processes.TimeOfThread().Ran-before)
}

// add adds processor time of a client, and returns its time in this interval.
func (c *costs) add(of client, took time.Duration) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := time.Now(); now.After(c.until) {
		c.until, c.by = now.Add(costInterval), make(map[client]time.Duration)
	}
	c.by[of] += took
	return c.by[of]
}
