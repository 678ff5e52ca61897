package tracetest

import (
	"runtime"
	"time"

	"ttmem/e2e/fuzztest"
)

// IsLate reports whether something took longer than it may. On a busy machine it may take as much
// longer as the test's own work does.
func IsLate(took, limit time.Duration) bool {
	limit *= Patience
	return took > limit && took > time.Duration(float64(limit)*slowdown())
}

// slowdown is how much longer than its CPU time work takes now.
func slowdown() float64 {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const work = 50 * time.Millisecond
	began := time.Now()
	for from := fuzztest.ThreadTime(); fuzztest.ThreadTime()-from < work; {
	}
	return float64(time.Since(began)) / float64(work)
}
