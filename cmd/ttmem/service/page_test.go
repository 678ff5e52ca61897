package service

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/browser"
	tracing "ttmem/tracer/host"
)

// TestThePageIsLive: a browser that has the token shows what is live, and what comes later.
func TestThePageIsLive(t *testing.T) {
	host := testHub()
	_, addr := serve(t, host.hub)
	b := browser.Trusting(t, testSecret.certificate.Leaf, 1280, 900)
	b.OpenURL("https://any:" + testToken + "@" + addr + "/")
	liveBytes := func() (bytes uint64) {
		b.Eval(`(r => { r.tally({ from: 0, to: r.last, at: r.last, chip: "" }); return r.sites.reduce((sum, s) => sum + (s.region === "DRAM" || s.region.startsWith("L1") ? r.amount(s.i, "live").bytes : 0), 0); })(ttmem.recording)`, &bytes)
		return bytes
	}
	want := func() (sum uint64) {
		for _, p := range host.shown(root).Processes {
			for _, total := range p.Live {
				if total.Region == "DRAM" || strings.HasPrefix(total.Region, "L1") {
					sum += total.AllocatedBytes
				}
			}
		}
		return sum
	}
	qt.Check(t, qt.Equals(liveBytes(), want()))
	qt.Check(t, qt.StringContains(b.Text("what"), "this host"))

	host.now = tracing.Now() // of the page
	host.churn(10, os.Getuid(), 50)
	host.hub.Flush()
	b.Wait("window.ttmem && ttmem.recording.last >= 50")
	qt.Check(t, qt.Equals(liveBytes(), want()))

	// what somebody does stays while it loads itself again
	b.Press("2")
	b.Eval("(document.querySelectorAll('#siteTable th button')[1].click(), true)", new(bool))
	b.Eval("(document.getElementById('overlay').focus(), true)", new(bool))
	b.Press("+")
	before := shown(b)
	qt.Check(t, qt.Equals(before, "overlay #range=0-end&view=sites sorted by 1, zoomed, newest "))
	host.churn(10, os.Getuid(), 50)
	host.hub.Flush()
	b.Wait("window.ttmem && ttmem.recording.last >= 100")
	qt.Check(t, qt.Equals(shown(b), before))
	qt.Check(t, qt.HasLen(b.Complaints, 0))
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

// TestPagesEnd a while after the last request, so that their events take no memory.
func TestPagesEnd(t *testing.T) {
	host := testHub()
	s := NewServer(host.hub, Options{Version: "1.2.3"})
	serveOn(t, s)
	pageOf := func() *livePage { p, _ := s.pageOf(root); return p }
	p := pageOf()
	<-p.begun
	qt.Check(t, qt.Equals(pageOf(), p))
	p.idle.Reset(0)
	for range 20_000 {
		s.pagesMu.Lock()
		n := len(s.pages)
		s.pagesMu.Unlock()
		if n == 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	qt.Check(t, qt.Not(qt.Equals(pageOf(), p)))
}
