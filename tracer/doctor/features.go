// Package doctor checks the host: it tries what tracing needs, and reports what it finds in
// a library.
package doctor

import (
	"fmt"

	"ttmem/tracer/host"
	"ttmem/tracer/kernel"
)

// Features tries what ttmem needs of the kernel and the user. It loads what tracing loads
// and traces a small program, so that it reports "ok" only for what was seen to work.
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
	if !kernel.MayTrace() {
		return list
	}
	return append(list, kernel.OptionalFeatures()...)
}
