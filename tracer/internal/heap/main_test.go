package heap

import (
	"testing"

	"ttmem/e2e/tracetest"
)

func TestMain(m *testing.M) { tracetest.Beside(m) }
