package term

import (
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"ttmem/cmd/ttmem/page"
)

// progress shows on a terminal how far something got that takes over a second.
type progress struct {
	size  int64
	Begun time.Time
	shown time.Time
}

func NewProgress(size int64) *progress { return &progress{size: size, Begun: time.Now()} }

func (p *progress) Show(done int64) {
	p.Report(func() string {
		if p.size == 0 { // a pipe
			return page.Bytes(uint64(done))
		}
		return fmt.Sprintf("%3d %% of %s", 100*done/p.size, page.Bytes(uint64(p.size)))
	})
}

// showing is the one that is shown, of several at a time: the first.
var showing atomic.Pointer[progress]

// Report shows how far it is.
func (p *progress) Report(how func() string) {
	if !showing.CompareAndSwap(nil, p) && showing.Load() != p {
		return
	}
	now := time.Now()
	if now.Sub(p.Begun) < time.Second || now.Sub(p.shown) < 100*time.Millisecond || !IsTerminal(os.Stderr) {
		return
	}
	p.shown = now
	fmt.Fprintf(os.Stderr, "\rreading: %s", how())
}

// End removes what was shown.
func (p *progress) End() {
	showing.CompareAndSwap(p, nil)
	if !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
