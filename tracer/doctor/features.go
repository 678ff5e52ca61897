// Package doctor says what works here: what tracing needs of the host, tried out, and what
// is found in a library.
package doctor

import (
	"fmt"
	"os"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// Features tries out what ttmem needs of the kernel and the user. It loads what tracing
// loads and traces a small program, so that it says "ok" of nothing else than what was
// seen to work.
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
	list = append(list, selfTest(selftestStack)...)
	if os.Geteuid() != 0 {
		return list
	}
	return append(list, kernel.OptionalFeatures()...)
}
