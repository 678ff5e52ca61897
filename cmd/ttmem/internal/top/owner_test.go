package top

import (
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/page"
)

// TestOwnersAreCutAtTheirUselessEnd: at the functions around a variable, and at the objects around an attribute.
func TestOwnersAreCutAtTheirUselessEnd(t *testing.T) {
	p := painter{page.Painter{}}
	for _, path := range []struct{ whole, cut string }{
		{"s.history[*] of main()", "s.history[*] of main()"},
		{"local main: local s.history[*] of main() of run()", "…ain: local s.history[*]"},
		{"model.decoder.layers[*].attention.wq", "….layers[*].attention.wq"},
	} {
		qt.Check(t, qt.Equals(p.cutOwner(path.whole, 24), path.cut))
	}
}
