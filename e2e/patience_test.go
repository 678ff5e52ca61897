package e2e

import "ttmem/e2e/tracetest"

// Limits of time, which an emulated machine multiplies.
var patience, eventually = tracetest.Patience, tracetest.Eventually
