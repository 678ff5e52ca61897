package tracer

import (
	"fmt"
	"os"
)

// Features tries out what ttmem needs of the kernel and the user. It loads what tracing
// loads and traces a small program, so that it says "ok" of nothing else than what was
// seen to work.
func Features() []Feature {
	list, supported := Requirements()
	if !supported {
		return list
	}
	mapping := Feature{Name: "mapping events", OK: true}
	if w, err := watchMappings(); err == nil {
		w.Close()
	} else {
		mapping.OK, mapping.Untried = false, notPermitted(err)
		mapping.Detail = fmt.Sprintf("%v; a kernel with CONFIG_PERF_EVENTS is needed", err)
	}
	list = append(list, mapping)
	list = append(list, selfTest(selftestStack)...)
	if os.Geteuid() != 0 {
		return list
	}
	return append(list, optionalFeatures()...)
}
