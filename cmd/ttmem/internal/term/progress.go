package term

import (
	"fmt"
	"os"
	"time"

	"ttmem/cmd/ttmem/internal/page"
)

// A Progress shows progress on a terminal once an activity takes more than a second.
type Progress struct {
	size  int64
	Begun time.Time
	shown time.Time
}

// NewProgress begins to read this many bytes; 0 if the number is not known.
func NewProgress(size int64) *Progress { return &Progress{size: size, Begun: time.Now()} }

// Show shows that this many bytes were read.
func (p *Progress) Show(done int64) {
	p.Report(func() string {
		if p.size == 0 { // a pipe
			return page.Bytes(uint64(done))
		}
		return fmt.Sprintf("%3d %% of %s", 100*done/p.size, page.Bytes(uint64(p.size)))
	})
}

// Report shows what was read.
func (p *Progress) Report(text func() string) {
	p.line(func() string { return "reading: " + text() })
}

func (p *Progress) line(text func() string) {
	now := time.Now()
	if now.Sub(p.Begun) < time.Second || now.Sub(p.shown) < 100*time.Millisecond || !IsTerminal(os.Stderr) {
		return
	}
	p.shown = now
	fmt.Fprint(os.Stderr, "\r"+text())
}

// While shows an activity, and for how long it has gone on, until end is called.
func While(activity string) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		p := NewProgress(0)
		defer p.End()
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				return
			case <-tick.C:
				p.line(func() string { return fmt.Sprintf("%s for %.0f s", activity, time.Since(p.Begun).Seconds()) })
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

// End removes the progress line.
func (p *Progress) End() {
	if !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
