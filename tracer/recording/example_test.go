package recording_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

// A recording is written, and its events are read again.
func ExampleCreate() {
	folder, err := os.MkdirTemp("", "")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "model.ttmem")

	f, err := recording.Create(path, recording.FileOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	f.Add(&event.Event{
		Kind: event.Alloc, TimeNs: 1000, PID: 4242, BufferID: 1, Devices: []int{0}, Region: event.L1,
		SizeBytes: 12 << 10, BytesPerBank: 1 << 10, Banks: 12,
	})
	f.Add(&event.Event{Kind: event.Free, TimeNs: 2000, PID: 4242, BufferID: 1, Devices: []int{0}, Region: event.L1, Reason: event.ReasonExplicit})
	if err := f.Close(recording.End{TimeNs: 2000}); err != nil {
		fmt.Println(err)
		return
	}

	r, err := recording.Open(path)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	var e event.Event
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		fmt.Println(e.TimeNs, e.Kind, e.Region, e.Devices)
	}
	if !errors.Is(err, io.EOF) {
		fmt.Println(err)
	}
	// Output:
	// 1000 alloc L1 [0]
	// 2000 free L1 [0]
}

// A recording that ends early is read up to there.
func ExampleTruncatedError() {
	var b bytes.Buffer
	w, err := recording.NewWriter(&b, recording.Header{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for n := range uint64(2) {
		w.Add(&event.Event{Kind: event.Mark, TimeNs: 1000 * n, Cause: fmt.Sprint("step ", n)})
		if err := w.Flush(); err != nil {
			fmt.Println(err)
			return
		}
	}
	b.Truncate(b.Len() - 3)

	r, err := recording.NewReader(&b)
	if err != nil {
		fmt.Println(err)
		return
	}
	var e event.Event
	for err = r.Next(&e); err == nil; err = r.Next(&e) {
		fmt.Println(e.Kind, e.Cause)
	}
	var cut *recording.TruncatedError
	fmt.Println(errors.As(err, &cut))
	// Output:
	// mark step 0
	// true
}
