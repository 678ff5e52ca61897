package service

import (
	"context"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
	tracing "ttmem/tracer/host"
	"ttmem/tracer/recording"
)

// TestThePageIsLive: a browser that has the token shows what is live, and what comes later.
func TestThePageIsLive(t *testing.T) {
	host := testHub()
	_, addr := serve(t, host.hub)
	b := browser.Trusting(t, testSecret.certificate.Leaf, 1280, 900)
	b.OpenURL("https://any:" + testToken + "@" + addr + "/")
	qt.Check(t, qt.Equals(liveBytes(b), liveOf(host)))
	qt.Check(t, qt.StringContains(b.Text("what"), "this host"))

	host.now = tracing.Now() // of the page
	host.churn(10, os.Getuid(), 50)
	host.hub.Flush()
	b.Wait("window.ttmem && ttmem.recording.last >= 150")
	qt.Check(t, qt.Equals(liveBytes(b), liveOf(host)))

	// what somebody does stays while it loads itself again
	b.Press("2")
	b.Eval("(document.querySelectorAll('#siteTable th button')[1].click(), true)", new(bool))
	b.Eval("(document.getElementById('overlay').focus(), true)", new(bool))
	b.Press("+")
	before := shown(b)
	qt.Check(t, qt.Equals(before, "overlay #range=0-end&view=sites sorted by 1, zoomed, newest "))
	host.churn(10, os.Getuid(), 50)
	host.hub.Flush()
	b.Wait("window.ttmem && ttmem.recording.last >= 200")
	qt.Check(t, qt.Equals(shown(b), before))
	qt.Check(t, qt.HasLen(b.Complaints, 0))
}

// liveBytes are those that a page shows as live.
func liveBytes(b *browser.Browser) (bytes uint64) {
	b.Eval(`(r => { r.tally({ from: 0, to: r.last, at: r.last, chip: "" }); return r.sites.reduce((sum, s) => sum + (s.region === "DRAM" || s.region.startsWith("L1") ? r.amount(s.i, "live").bytes : 0), 0); })(ttmem.recording)`, &bytes)
	return bytes
}

// liveOf are those that the hub has.
func liveOf(host *host) (sum uint64) {
	for _, p := range host.shown(root).Processes {
		for _, total := range p.Live {
			if total.Region == "DRAM" || strings.HasPrefix(total.Region, "L1") {
				sum += total.AllocatedBytes
			}
		}
	}
	return sum
}

// shown is what somebody has chosen on a page.
func shown(b *browser.Browser) (text string) {
	b.Eval(`(() => {
		const zoomed = ttmem.timeline.zoomed(), sorted = [...document.querySelectorAll("#siteTable th")].findIndex((th) => th.ariaSort);
		return document.activeElement.id + " " + location.hash + " sorted by " + sorted + (zoomed ? ", zoomed" + (zoomed.newest ? ", newest " : " ") : "");
	})()`, &text)
	return text
}

// TestThePageIsNotForEverybody: it shows all processes.
func TestThePageIsNotForEverybody(t *testing.T) {
	host := testHub()
	path, addr := serve(t, host.hub)
	answer, err := testClient.Get("https://" + addr + "/")
	qt.Assert(t, qt.IsNil(err))
	answer.Body.Close()
	qt.Check(t, qt.Equals(answer.StatusCode, http.StatusUnauthorized))
	qt.Check(t, qt.Equals(answer.Header.Get("WWW-Authenticate"), basicAuth))
	r, err := http.NewRequest(http.MethodGet, "https://"+addr+"/", nil)
	qt.Assert(t, qt.IsNil(err))
	r.SetBasicAuth("any", testToken+"x")
	answer, err = testClient.Do(r)
	qt.Assert(t, qt.IsNil(err))
	answer.Body.Close()
	qt.Check(t, qt.Equals(answer.StatusCode, http.StatusUnauthorized))
	text := talk(t, path, "GET / HTTP/1.1\r\nHost: ttmem\r\nConnection: close\r\n\r\n")
	if os.Getuid() == 0 {
		qt.Check(t, qt.StringContains(text, "<h1>Device memory</h1>"))
	} else {
		qt.Check(t, qt.StringContains(text, "403 Forbidden"))
	}
}

// A page has the newest events, and what was live before them.
func TestAPageHasTheNewestEvents(t *testing.T) {
	host := testHub()
	s := NewServer(host.hub, Options{Version: "1.2.3"})
	past, err := host.hub.Past(context.Background(), root, 0)
	qt.Assert(t, qt.IsNil(err))
	b := browser.New(t, 1280, 900)
	for _, most := range []uint64{past.Events, 1000, 30, 1} {
		web := filepath.Join(t.TempDir(), "page.html")
		f, err := os.Create(web)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(s.writePage(f, recording.Excerpt{Data: slices.Clone(past.Data), Events: past.Events}, most)))
		qt.Assert(t, qt.IsNil(f.Close()))
		b.Call("Page.navigate", map[string]any{"url": "file://" + web})
		b.Wait("window.ttmem")
		var last uint64
		b.Eval("ttmem.recording.last", &last)
		qt.Check(t, qt.Equals(last, min(most, past.Events)))
		qt.Check(t, qt.Equals(liveBytes(b), liveOf(host)))
	}
}
