// Package browser steers a headless Chromium in tests of pages.
package browser

import (
	"bufio"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// A Browser is a page in a headless Chromium, steered by its DevTools protocol over a pipe: messages of JSON
// that end with a zero byte.
type Browser struct {
	t testing.TB
	*program
	// session is that of the page or the frame in which the methods act, sessions all of this page's.
	session  string
	sessions map[string]bool
	// Complaints are what the page wrote to its console, and its exceptions.
	Complaints []string
	// Requests are the addresses that the page asked for.
	Requests []string
}

// A program is a running Chromium. It ends when its pipe is closed, so with the test at the latest.
type program struct {
	cmd  *exec.Cmd
	to   *os.File
	pipe *os.File
	from *bufio.Reader
	id   int // of the last message
}

// idle are the programs that no test uses: starting one takes a second.
var idle struct {
	sync.Mutex
	list []*program
}

// answers is how long the browser may take for an answer.
const answers = 2 * time.Minute

// New opens an empty page. The test fails where there is no browser.
func New(t testing.TB, width, height int) *Browser {
	t.Helper()
	idle.Lock()
	var p *program
	if n := len(idle.list); n > 0 {
		p, idle.list = idle.list[n-1], idle.list[:n-1]
	}
	idle.Unlock()
	if p == nil {
		p = start(t)
	}
	t.Cleanup(func() {
		if t.Failed() { // perhaps because it does not answer
			p.end()
			return
		}
		idle.Lock()
		idle.list = append(idle.list, p)
		idle.Unlock()
	})
	return p.open(t, width, height)
}

// Trusting is New for a browser into which somebody has imported a certificate of a server.
func Trusting(t testing.TB, certificate *x509.Certificate, width, height int) *Browser {
	t.Helper()
	key := sha256.Sum256(certificate.RawSubjectPublicKeyInfo)
	p := start(t, "--ignore-certificate-errors-spki-list="+base64.StdEncoding.EncodeToString(key[:]))
	t.Cleanup(p.end)
	return p.open(t, width, height)
}

func start(t testing.TB, flags ...string) *program {
	t.Helper()
	path := ""
	for _, name := range []string{os.Getenv("TTMEM_BROWSER"), "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Fatal("no chromium, chromium-browser or google-chrome in PATH: `make tools` installs one, and TTMEM_BROWSER names another")
	}
	theirs, to, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	from, theirOut, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	dir, err := os.MkdirTemp("", "ttmem-browser")
	qt.Assert(t, qt.IsNil(err))
	// The shell outlives the test. The browser's processes end one after the other and write to the last.
	const run = `dir=$1; shift; "$@"; for i in 1 2 3 4 5 6 7 8 9 10; do rm -rf "$dir" && break; sleep 0.1; done`
	cmd := exec.Command("sh", append([]string{"-c", run, "sh", dir, path, "--headless=new", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir=" + dir}, flags...)...)
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	qt.Assert(t, qt.IsNil(cmd.Start()))
	theirs.Close()
	theirOut.Close()
	return &program{cmd: cmd, to: to, pipe: from, from: bufio.NewReaderSize(from, 1<<20)}
}

// end ends the program.
func (p *program) end() {
	p.to.Close()
	kill := time.AfterFunc(5*time.Second, func() { syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL) })
	p.cmd.Wait()
	kill.Stop()
	p.pipe.Close()
}

// open opens an empty page that shares nothing with the program's others, until the end of the test.
func (p *program) open(t testing.TB, width, height int) *Browser {
	t.Helper()
	b := &Browser{t: t, program: p, sessions: make(map[string]bool)}
	var context struct{ BrowserContextID string }
	b.decode(b.Call("Target.createBrowserContext", nil), &context)
	t.Cleanup(func() {
		if b.session = ""; !t.Failed() {
			b.Call("Target.disposeBrowserContext", map[string]any{"browserContextId": context.BrowserContextID})
		}
	})
	var target struct{ TargetID string }
	b.decode(b.Call("Target.createTarget", map[string]any{"url": "about:blank", "browserContextId": context.BrowserContextID}), &target)
	b.attach(target.TargetID)
	b.Call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	})
	return b
}

func (b *Browser) decode(raw json.RawMessage, v any) {
	b.t.Helper()
	qt.Assert(b.t, qt.IsNil(json.Unmarshal(raw, v)))
}

// Call sends a command and waits for its result.
func (b *Browser) Call(method string, params any) json.RawMessage {
	b.t.Helper()
	b.id++
	message := map[string]any{"id": b.id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	raw, err := json.Marshal(message)
	qt.Assert(b.t, qt.IsNil(err))
	_, err = b.to.Write(append(raw, 0))
	qt.Assert(b.t, qt.IsNil(err))
	for {
		answer := b.read()
		if answer.ID == b.id {
			qt.Assert(b.t, qt.IsNil(answer.Error), qt.Commentf("%s", method))
			return answer.Result
		}
	}
}

type answer struct {
	ID        int
	SessionID string
	Method    string
	Params    json.RawMessage
	Result    json.RawMessage
	Error     *struct{ Message string }
}

func (b *Browser) read() answer {
	b.t.Helper()
	qt.Assert(b.t, qt.IsNil(b.pipe.SetReadDeadline(time.Now().Add(answers))))
	raw, err := b.from.ReadBytes(0)
	qt.Assert(b.t, qt.IsNil(err), qt.Commentf("the browser does not answer"))
	var a answer
	b.decode(raw[:len(raw)-1], &a)
	if !b.sessions[a.SessionID] { // of a page that was closed
		a.Method = ""
	}
	switch a.Method {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
		b.Complaints = append(b.Complaints, string(a.Params))
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		b.decode(a.Params, &sent)
		b.Requests = append(b.Requests, sent.Request.URL)
	}
	return a
}

// Open loads a file and waits until it is drawn.
func (b *Browser) Open(path string) { b.OpenURL("file://" + path) }

// OpenURL loads a page and waits until it is drawn.
func (b *Browser) OpenURL(url string) {
	b.t.Helper()
	b.Call("Page.navigate", map[string]any{"url": url})
	b.Wait(drawn)
	b.Settle()
}

// drawn is the condition that a page of ttmem is drawn.
const drawn = "document.readyState === 'complete' && window.ttmem"

// attach makes the other methods act in a target.
func (b *Browser) attach(target string) {
	b.t.Helper()
	b.session = ""
	var session struct{ SessionID string }
	b.decode(b.Call("Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}), &session)
	b.session = session.SessionID
	b.sessions[b.session] = true
	b.Call("Performance.enable", map[string]any{"timeDomain": "threadTicks"})
	for _, domain := range []string{"Page", "Runtime", "Network"} {
		b.Call(domain+".enable", nil)
	}
}

// OpenFrame loads a file and waits until the page in its frame is drawn, in which the other methods
// act from then on. The frame has an origin of its own.
func (b *Browser) OpenFrame(path string) {
	b.t.Helper()
	b.Call("Page.navigate", map[string]any{"url": "file://" + path})
	b.Wait("document.readyState === 'complete'")
	var all struct {
		TargetInfos []struct{ TargetID, Type string }
	}
	b.decode(b.Call("Target.getTargets", nil), &all)
	for _, one := range all.TargetInfos {
		if one.Type == "iframe" {
			b.attach(one.TargetID)
			b.Wait(drawn)
			return
		}
	}
	b.t.Fatal("no frame with an origin of its own")
}

// CheckQuiet checks that the page had no error and asked for nothing else.
func (b *Browser) CheckQuiet() {
	b.t.Helper()
	qt.Check(b.t, qt.HasLen(b.Complaints, 0))
	for _, url := range b.Requests {
		qt.Check(b.t, qt.IsTrue(strings.HasPrefix(url, "file:") || strings.HasPrefix(url, "data:")), qt.Commentf("%s", url))
	}
}

// Eval evaluates a JavaScript expression, of which the value is JSON.
func (b *Browser) Eval(expression string, v any) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.decode(b.Call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}), &result)
	qt.Assert(b.t, qt.HasLen(result.ExceptionDetails, 0), qt.Commentf("%s: %s", expression, result.ExceptionDetails))
	b.decode(result.Result.Value, v)
}

// CPU returns the processor time that the page's main thread, which runs its scripts and draws it, has
// taken.
func (b *Browser) CPU() time.Duration {
	b.t.Helper()
	var all struct {
		Metrics []struct {
			Name  string
			Value float64
		}
	}
	b.decode(b.Call("Performance.getMetrics", nil), &all)
	for _, one := range all.Metrics {
		if one.Name == "TaskDuration" {
			return time.Duration(one.Value * float64(time.Second)).Round(time.Millisecond)
		}
	}
	b.t.Fatal("the browser does not say how much processor time it took")
	return 0
}

// Wait waits until a JavaScript condition is true.
func (b *Browser) Wait(condition string) {
	b.t.Helper()
	for until := time.Now().Add(answers); time.Now().Before(until); time.Sleep(50 * time.Millisecond) {
		ok := false
		b.Eval("Boolean("+condition+")", &ok)
		if ok {
			return
		}
	}
	b.t.Fatalf("never true: %s; the page wrote: %s", condition, b.Complaints)
}

// Settle waits until what was asked for is drawn.
func (b *Browser) Settle() {
	b.t.Helper()
	var ok bool
	b.Eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => r(true)))))", &ok)
}

// Mouse sends an event of the mouse, of that kind.
func (b *Browser) Mouse(kind string, x, y float64, clicks int) {
	b.t.Helper()
	b.Call("Input.dispatchMouseEvent", map[string]any{
		"type": kind, "x": x, "y": y, "button": "left", "clickCount": clicks,
	})
}

// Click clicks with the left button.
func (b *Browser) Click(x, y float64) {
	b.t.Helper()
	b.Mouse("mousePressed", x, y, 1)
	b.Mouse("mouseReleased", x, y, 1)
	b.Settle()
}

// Press presses one key, of that name.
func (b *Browser) Press(key string) {
	b.t.Helper()
	params := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		params["text"] = key
	}
	if key == "Enter" {
		params["text"], params["windowsVirtualKeyCode"] = "\r", 13
	}
	b.Call("Input.dispatchKeyEvent", params)
	b.Call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key})
	b.Settle()
}

// Write types a text.
func (b *Browser) Write(text string) {
	b.t.Helper()
	b.Call("Input.insertText", map[string]any{"text": text})
	b.Settle()
}

// Choose selects a value in one of the page's lists.
func (b *Browser) Choose(id, value string) {
	b.t.Helper()
	var got string
	b.Eval(fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event("change")); return e.value; })()`, id, value), &got)
	qt.Assert(b.t, qt.Equals(got, value))
	b.Settle()
}

// Toggle clicks a checkbox.
func (b *Browser) Toggle(id string) {
	b.t.Helper()
	b.Eval(fmt.Sprintf("(document.getElementById(%q).click(), true)", id), new(bool))
	b.Settle()
}

// Text returns the text of an element.
func (b *Browser) Text(id string) string {
	b.t.Helper()
	var got string
	b.Eval(fmt.Sprintf("document.getElementById(%q).textContent", id), &got)
	return got
}

// Screenshot keeps a picture of the page where TTMEM_SCREENSHOTS names a folder.
func (b *Browser) Screenshot(name string) {
	b.t.Helper()
	if dir := os.Getenv("TTMEM_SCREENSHOTS"); dir != "" {
		b.WritePicture(dir + "/" + name + ".png")
	}
}

// WritePicture writes a picture of the page.
func (b *Browser) WritePicture(file string) {
	b.t.Helper()
	var picture struct{ Data []byte }
	b.decode(b.Call("Page.captureScreenshot", nil), &picture)
	qt.Assert(b.t, qt.IsNil(os.WriteFile(file, picture.Data, 0o644)))
}

// Dark chooses the dark or the light colours.
func (b *Browser) Dark(on bool) {
	b.t.Helper()
	value := "light"
	if on {
		value = "dark"
	}
	b.Call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}},
	})
	b.Settle()
}
