// Package doctor checks the host: it tries the features that tracing needs, and reports the layout
// of a library.
// It is not part of ttmem's Go library: it changes without notice.
package doctor

import (
	"fmt"
	"time"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// selftestPatience is how long the self test waits for calls and stacks: with all processors taken, seconds.
const selftestPatience = 20 * time.Second

// Features tries what ttmem needs from the kernel and the user. It loads the kernel side and traces
// a small program, so that "ok" means that a feature has worked.
func Features() []kernel.Feature {
	list, supported := kernel.Requirements()
	if !supported {
		return list
	}
	mapping := kernel.Feature{Name: "mapping events", OK: true}
	if w, err := host.WatchMappings(); err == nil {
		w.Close()
	} else {
		mapping.OK, mapping.Untried = false, kernel.NotPermitted(err)
		mapping.Detail = fmt.Sprintf("%v; a kernel with CONFIG_PERF_EVENTS is needed", err)
	}
	list = append(list, mapping)
	list = append(list, selfTest(selftestStack, selftestPatience)...)
	if !kernel.MayTrace() {
		return list
	}
	return append(list, kernel.OptionalFeatures()...)
}
