package export

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// A browser is a headless Chromium with one page, steered by its DevTools
// protocol over a pipe: messages of JSON that end with a zero byte.
type browser struct {
	t       *testing.T
	to      *os.File
	from    *bufio.Reader
	session string
	id      int
	// complaints are what the page wrote to its console, and its exceptions.
	complaints []string
	requests   []string
}

// newBrowser starts one, or skips the test where there is none.
func newBrowser(t *testing.T, width, height int) *browser {
	t.Helper()
	path := ""
	for _, name := range []string{os.Getenv("TTMEM_BROWSER"), "chromium", "chromium-browser", "google-chrome"} {
		if found, err := exec.LookPath(name); err == nil {
			path = found
			break
		}
	}
	if path == "" {
		t.Skip("no chromium, chromium-browser or google-chrome in PATH; TTMEM_BROWSER names another one")
	}
	theirs, to, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	from, theirOut, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	// Its processes end one after the other and write to the last: what cannot be
	// removed then is no failure of the test.
	dir, err := os.MkdirTemp("", "ttmem-browser")
	qt.Assert(t, qt.IsNil(err))
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe", "--user-data-dir="+dir,
		fmt.Sprintf("--window-size=%d,%d", width, height), "about:blank")
	cmd.ExtraFiles = []*os.File{theirs, theirOut}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	qt.Assert(t, qt.IsNil(cmd.Start()))
	theirs.Close()
	theirOut.Close()
	qt.Assert(t, qt.IsNil(from.SetReadDeadline(time.Now().Add(90*time.Second))))
	b := &browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20)}
	t.Cleanup(func() {
		to.Close() // which ends it
		kill := time.AfterFunc(5*time.Second, func() { cmd.Process.Kill() })
		cmd.Wait()
		kill.Stop()
		from.Close()
		syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		for range 20 {
			if os.RemoveAll(dir) == nil {
				break
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
	var target struct{ TargetID string }
	b.decode(b.call("Target.createTarget", map[string]any{"url": "about:blank"}), &target)
	var session struct{ SessionID string }
	b.decode(b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}), &session)
	b.session = session.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network"} {
		b.call(domain+".enable", nil)
	}
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{
		"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
	})
	return b
}

func (b *browser) decode(raw json.RawMessage, v any) {
	b.t.Helper()
	qt.Assert(b.t, qt.IsNil(json.Unmarshal(raw, v)))
}

// call sends a command and waits for its result.
func (b *browser) call(method string, params any) json.RawMessage {
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
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

func (b *browser) read() answer {
	b.t.Helper()
	raw, err := b.from.ReadBytes(0)
	qt.Assert(b.t, qt.IsNil(err), qt.Commentf("the browser does not answer"))
	var a answer
	b.decode(raw[:len(raw)-1], &a)
	switch a.Method {
	case "Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
		b.complaints = append(b.complaints, string(a.Params))
	case "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		b.decode(a.Params, &sent)
		b.requests = append(b.requests, sent.Request.URL)
	}
	return a
}

// open loads a file and waits until it is drawn.
func (b *browser) open(path string) {
	b.t.Helper()
	b.call("Page.navigate", map[string]any{"url": "file://" + path})
	b.wait("document.readyState === 'complete' && window.ttmem && ttmem.boxes().length > 0")
}

// eval evaluates a JavaScript expression, of which the value is JSON.
func (b *browser) eval(expression string, v any) {
	b.t.Helper()
	var result struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.decode(b.call("Runtime.evaluate", map[string]any{
		"expression": expression, "returnByValue": true, "awaitPromise": true,
	}), &result)
	qt.Assert(b.t, qt.HasLen(result.ExceptionDetails, 0), qt.Commentf("%s: %s", expression, result.ExceptionDetails))
	b.decode(result.Result.Value, v)
}

func (b *browser) wait(condition string) {
	b.t.Helper()
	for range 600 {
		ok := false
		b.eval("Boolean("+condition+")", &ok)
		if ok {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	b.t.Fatalf("never true: %s", condition)
}

// settle waits until what was asked for is drawn.
func (b *browser) settle() {
	b.t.Helper()
	var ok bool
	b.eval("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(() => r(true)))))", &ok)
}

func (b *browser) mouse(kind string, x, y float64, clicks int) {
	b.t.Helper()
	b.call("Input.dispatchMouseEvent", map[string]any{
		"type": kind, "x": x, "y": y, "button": "left", "clickCount": clicks,
	})
}

func (b *browser) click(x, y float64) {
	b.t.Helper()
	b.mouse("mousePressed", x, y, 1)
	b.mouse("mouseReleased", x, y, 1)
	b.settle()
}

// press presses one key, of that name.
func (b *browser) press(key string) {
	b.t.Helper()
	params := map[string]any{"type": "keyDown", "key": key}
	if len(key) == 1 {
		params["text"] = key
	}
	if key == "Enter" {
		params["text"], params["windowsVirtualKeyCode"] = "\r", 13
	}
	b.call("Input.dispatchKeyEvent", params)
	b.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": key})
	b.settle()
}

func (b *browser) write(text string) {
	b.t.Helper()
	b.call("Input.insertText", map[string]any{"text": text})
	b.settle()
}

// choose selects a value in one of the page's lists.
func (b *browser) choose(id, value string) {
	b.t.Helper()
	var got string
	b.eval(fmt.Sprintf(`(() => { const e = document.getElementById(%q); e.value = %q; e.dispatchEvent(new Event("change")); return e.value; })()`, id, value), &got)
	qt.Assert(b.t, qt.Equals(got, value))
	b.settle()
}

// toggle clicks a checkbox.
func (b *browser) toggle(id string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("(document.getElementById(%q).click(), true)", id), new(bool))
	b.settle()
}

func (b *browser) text(id string) string {
	b.t.Helper()
	var got string
	b.eval(fmt.Sprintf("document.getElementById(%q).textContent", id), &got)
	return got
}

// screenshot keeps a picture of the page where TTMEM_SCREENSHOTS names a folder.
func (b *browser) screenshot(name string) {
	b.t.Helper()
	if dir := os.Getenv("TTMEM_SCREENSHOTS"); dir != "" {
		b.writePicture(dir + "/" + name + ".png")
	}
}

// writePicture writes a picture of the page.
func (b *browser) writePicture(file string) {
	b.t.Helper()
	var picture struct{ Data []byte }
	b.decode(b.call("Page.captureScreenshot", nil), &picture)
	qt.Assert(b.t, qt.IsNil(os.WriteFile(file, picture.Data, 0o644)))
}

func (b *browser) dark(on bool) {
	b.t.Helper()
	value := "light"
	if on {
		value = "dark"
	}
	b.call("Emulation.setEmulatedMedia", map[string]any{
		"features": []map[string]string{{"name": "prefers-color-scheme", "value": value}},
	})
	b.settle()
}
