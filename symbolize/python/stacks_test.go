package python

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// said is what testdata/stacks.py says about a thread.
type said struct {
	Kind   string
	Ident  uint64
	TID    uint32
	Frames []saidFrame
}

// saidFrame is name, qualified name, file and line of a frame.
type saidFrame struct {
	name, qualName, file string
	line                 int
}

func (f *saidFrame) UnmarshalJSON(b []byte) error {
	return json.Unmarshal(b, &[]any{&f.name, &f.qualName, &f.file, &f.line})
}

// start runs testdata/stacks.py until it has said all, and stops at the end of
// the test.
func start(t *testing.T, p interpreter) (pid int, threads []said) {
	t.Helper()
	cmd := exec.Command(p.exe, "-X", "utf8", "testdata/stacks.py")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	out, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		in.Close()
		cmd.Process.Kill()
		cmd.Wait()
	})
	hang := time.AfterFunc(time.Minute, func() { cmd.Process.Kill() })
	defer hang.Stop()
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		cmd.Wait()
		t.Fatalf("%v: %s", err, &stderr)
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(line, &threads)))
	return cmd.Process.Pid, threads
}

// newestCall is how many of the newest frames are of one call of
// _PyEval_EvalFrameDefault since 3.11, in the kinds of stacks where below them is
// C code that calls Python.
var newestCall = map[string]int{
	"groups": 3, "reduced": 1, "deleted": 1, "called_back": 1, "classes": 1, "main": 2,
}

func TestStacksAreThoseOfPython(t *testing.T) {
	for _, p := range interpreters(t) {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			pid, threads := start(t, p)
			target, stop, err := attach(pid)
			if errors.Is(err, fs.ErrPermission) {
				t.Skip("the memory of another process may not be read: ", err)
			}
			qt.Assert(t, qt.IsNil(err))
			defer stop()
			qt.Assert(t, qt.Equals(target.runtime.Version, p.version))

			states, err := target.byList()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.HasLen(states, len(threads)))
			frames := 0
			for _, thread := range threads {
				state, err := target.byKey(thread.Ident)
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(state, states[thread.Ident]))
				tid, err := target.u32(thread.Ident + uint64(target.pthread.TID))
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(tid, thread.TID))

				eventually(t, func() error { return compareStack(target, state, thread) })
				frames += len(thread.Frames)
			}
			t.Logf("%d stacks, %d frames", len(threads), frames)
		})
	}
}

// compareStack compares a stack with what Python says.
func compareStack(p *target, state uint64, thread said) error {
	frames, err := p.walk(state)
	if err != nil {
		return err
	}
	var got []saidFrame
	newest := 0
	for i, f := range frames {
		if f.last && newest == 0 {
			newest = i + 1
		}
		c, err := p.code(f.code)
		if err != nil {
			return err
		}
		got = append(got, saidFrame{c.Name, c.QualName, c.File, c.Line(f.offset)})
	}
	if !reflect.DeepEqual(got, thread.Frames) {
		return fmt.Errorf("%s: stack is\n%v, not\n%v", thread.Kind, got, thread.Frames)
	}
	if len(frames) == 0 || !frames[len(frames)-1].last {
		return fmt.Errorf("%s: the oldest frame is no call's last", thread.Kind)
	}
	want, ok := newestCall[thread.Kind]
	if p.runtime.Offsets.Marker == MarkerNone {
		want = 1
	}
	if ok && newest != want {
		return fmt.Errorf("%s: the newest call has %d frames, not %d", thread.Kind, newest, want)
	}
	return nil
}

// eventually waits for a thread that has said where it will block to block there.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for range 50 {
		if err = f(); err == nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatal(err)
}
