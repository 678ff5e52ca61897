package memoryviz

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
	"ttmem/e2e/pagetest"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// modules are what the viewer loads from elsewhere and offers to others.
var modules = regexp.MustCompile(`(?m)^import .*$|^export `)

// TestTheViewerInABrowser: all its views of a region.
func TestTheViewerInABrowser(t *testing.T) {
	s := create(t)
	s.open(4242, 0)
	hostile := event.StackOf([]event.Frame{{Kind: event.Python, Name: "</pre><img src=x onerror=alert(1)>", File: "/srv/model.py", Line: 3}})
	for id := range uint64(20) {
		s.Event(pagetest.Buffer(event.Alloc, id, event.DRAM, 0x1000+id*4096, 4096, hostile, 0))
	}
	s.buffer(event.Free, 4242, 3, 0, 0)
	s.Close()

	d3, err := rig.D3(t.Context())
	qt.Assert(t, qt.IsNil(err))
	read := func(path string) string {
		text, err := os.ReadFile(path)
		qt.Assert(t, qt.IsNil(err))
		return string(text)
	}
	viewer := modules.ReplaceAllString(read(filepath.Join(pytorch(t), "torch/utils/viz/MemoryViz.js")), "")
	page := filepath.Join(t.TempDir(), "viewer.html")
	qt.Assert(t, qt.IsNil(os.WriteFile(page, fmt.Appendf(nil, `<!DOCTYPE html><meta charset="utf-8"><body><script>%s</script><script>
const {axisLeft, scaleLinear, zoom, zoomIdentity, brushX} = d3;
%s
add_local_files([{name: "model", base64: %q}], "Active Memory Timeline");
</script>`, read(filepath.Join(d3, "dist/d3.min.js")), viewer, base64.StdEncoding.EncodeToString([]byte(read(s.Path)))), 0o600)))

	b := browser.New(t, 1200, 900)
	b.Call("Page.navigate", map[string]any{"url": "file://" + page})
	b.Wait("document.querySelectorAll('polygon').length >= 20")
	show := func(view string) (text string) {
		b.Eval(fmt.Sprintf(`(() => {
			const list = document.querySelectorAll("select")[1];
			list.value = %q;
			list.dispatchEvent(new Event("change"));
			return [...document.body.querySelectorAll("pre")].map(e => e.textContent).join("\n");
		})()`, view), &text)
		return text
	}
	history := show("Allocator State History")
	qt.Check(t, qt.StringContains(history, "alloc          bc000_0"))
	qt.Check(t, qt.Equals(strings.Count(history, "alloc  "), 20))
	qt.Check(t, qt.Equals(strings.Count(history, "free  "), 1))
	show("Active Cached Segment Timeline")
	// what an event shows below the list
	var shown string
	b.Eval(`(() => {
		const event = [...document.querySelectorAll("pre")].find(e => e.textContent.startsWith("alloc"));
		event.dispatchEvent(new MouseEvent("mouseover", {bubbles: true}));
		event.dispatchEvent(new MouseEvent("mousedown", {bubbles: true}));
		return [...document.querySelectorAll("pre")].map(e => e.textContent).join("\n");
	})()`, &shown)
	qt.Check(t, qt.StringContains(shown, "/srv/model.py:3:</pre><img src=x onerror=alert(1)>"))
	images := 1
	b.Eval(`document.querySelectorAll("img").length`, &images)
	qt.Check(t, qt.Equals(images, 0))
	for _, complaint := range b.Complaints { // it writes the snapshot to its console
		qt.Check(t, qt.IsFalse(strings.Contains(complaint, "exceptionDetails")), qt.Commentf("%s", complaint))
		qt.Check(t, qt.IsFalse(strings.Contains(complaint, `"dialogType"`)), qt.Commentf("%s", complaint))
	}
}
