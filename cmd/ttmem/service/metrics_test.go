package service

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// Everybody gets the totals of all processes; processes are for root and the token.
func TestMetricsShowProcessesToTheTokenOnly(t *testing.T) {
	host := testHub()
	host.start(20, 4321)
	host.churn(20, 4321, 50)
	path, addr := serve(t, host.hub)
	const series = "ttmem_process_memory_used_bytes{"
	_, totals := get(t, addr, "/metrics", "", "")
	status, all := get(t, addr, "/metrics?processes=10", "", testToken)
	qt.Check(t, qt.Equals(status, 200))
	qt.Check(t, qt.StringContains(all, series+`chip="0",comm="comm-of-4321"`))
	qt.Check(t, qt.Equals(strings.Count(all, series), 2))
	qt.Check(t, qt.StringContains(totals, `ttmem_device_memory_used_bytes{chip="0",region="DRAM"}`))
	qt.Check(t, qt.StringContains(totals, "\nttmem_allocation_failures_total 1\n")) // of another user
	qt.Check(t, qt.StringContains(totals, "\nprocess_resident_memory_bytes "))
	qt.Check(t, qt.Not(qt.StringContains(totals, "-of-")))
	status, _ = get(t, addr, "/metrics?processes=10", "", "")
	qt.Check(t, qt.Equals(status, 403))
	status, _ = get(t, addr, "/metrics?processes=1001", "", testToken)
	qt.Check(t, qt.Equals(status, 400))
	qt.Check(t, qt.StringContains(talk(t, path, "GET /metrics HTTP/1.0\r\n\r\n"), "\nttmem_processes 2\n"))
}
