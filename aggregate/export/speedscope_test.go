package export

import (
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

// inSpeedscope returns the table of functions that npm's speedscope shows in Chromium, as its command
// line opens a file. It is there when the page has the text.
func inSpeedscope(t *testing.T, name, content, text string) string {
	t.Helper()
	dir, err := rig.Speedscope(t.Context())
	qt.Assert(t, qt.IsNil(err))
	b := browser.New(t, 1200, 800)
	script := filepath.Join(t.TempDir(), "x.js")
	load := fmt.Sprintf("speedscope.loadFileFromBase64('%s', '%s')", name, base64.StdEncoding.EncodeToString([]byte(content)))
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(load), 0o644)))
	b.Call("Page.navigate", map[string]any{"url": "file://" + dir + "/dist/release/index.html#localProfilePath=" + script})
	b.Wait(fmt.Sprintf("document.body && document.body.innerText.includes(%q)", text))
	b.Eval("([...document.querySelectorAll('div')].filter(d => d.textContent.endsWith('Sandwich')).pop().click(), true)", new(bool))
	b.Wait("document.body.innerText.includes('Symbol Name')")
	b.Screenshot("speedscope_" + name)
	shown := ""
	b.Eval("document.body.innerText", &shown)
	return strings.Join(strings.Fields(shown), " ")
}

func TestSpeedscopeOpensIt(t *testing.T) {
	var file strings.Builder
	_, err := Speedscope(&file, smallRun().state.Profile(), Options{Value: "alloc_space"})
	qt.Assert(t, qt.IsNil(err))
	shown := inSpeedscope(t, "x.json", file.String(), "DRAM allocated (2/22)")
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

// Folded stacks have neither units nor a name.
func TestSpeedscopeOpensFoldedStacks(t *testing.T) {
	shown := inSpeedscope(t, "x.folded", folded(t, smallRun().state.Profile()), "x.folded")
	for _, row := range []string{
		"134,217,728 (96%) 0 (<0.01%) load (weights.py:31)", "136,093,696 (98%) 0 (<0.01%) python3 (1234)",
		`3,145,728 (2.3%) 0 (<0.01%) </script><img src=x onerror=alert(1)> ("é '.py:1)`,
	} {
		qt.Check(t, qt.StringContains(shown, row))
	}
}
