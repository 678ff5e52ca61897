package export

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
	"ttmem/e2e/rig"
)

// TestSpeedscopeOpensIt: npm's speedscope in Chromium, as its command line opens a file.
func TestSpeedscopeOpensIt(t *testing.T) {
	dir, err := rig.NpmPackage(t.Context(), "speedscope", "1.25.0")
	qt.Assert(t, qt.IsNil(err))
	b := browser.New(t, 1200, 800)
	var file bytes.Buffer
	_, err = Speedscope(&file, smallRun().state.Profile(), Options{Value: "alloc_space"})
	qt.Assert(t, qt.IsNil(err))
	script := filepath.Join(t.TempDir(), "x.js")
	text := fmt.Sprintf("speedscope.loadFileFromBase64('x.json', '%s')", base64.StdEncoding.EncodeToString(file.Bytes()))
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(text), 0o644)))
	b.Call("Page.navigate", map[string]any{"url": "file://" + dir + "/dist/release/index.html#localProfilePath=" + script})
	b.Wait("document.body && document.body.innerText.includes('DRAM allocated (2/22)')")
	b.Eval("([...document.querySelectorAll('div')].filter(d => d.textContent.endsWith('Sandwich')).pop().click(), true)", new(bool))
	b.Wait("document.body.innerText.includes('Symbol Name')")
	b.Screenshot("speedscope")
	shown := ""
	b.Eval("document.body.innerText", &shown)
	shown = strings.Join(strings.Fields(shown), " ")
	for _, row := range []string{ // in total, itself, and its name
		"128.00 MB (97%) 128.00 MB (97%) tt::tt_metal::GraphTracker::instance",
		"129.00 MB (98%) 0 B (<0.01%) python3 (1234)",
		"67.00 MB (51%) 0 B (<0.01%) device 1",
		"128.00 MB (97%) 0 B (<0.01%) load (weights.py:31)",
		"1.00 MB (0.76%) 1.00 MB (0.76%) [no stack]",
		"3.00 MB (2.3%) 0 B (<0.01%) </script><img src=x onerror=alert(1)> (",
	} {
		qt.Check(t, qt.StringContains(shown, row))
	}
}
