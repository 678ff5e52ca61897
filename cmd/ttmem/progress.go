package main

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
	begun time.Time
	shown time.Time
}

func newProgress(size int64) *progress { return &progress{size: size, begun: time.Now()} }

func (p *progress) show(done int64) {
	p.tell(func() string {
		if p.size == 0 { // a pipe
			return page.Bytes(uint64(done))
		}
		return fmt.Sprintf("%3d %% of %s", 100*done/p.size, page.Bytes(uint64(p.size)))
	})
}

// showing is the one that is shown, of several at a time: the first.
var showing atomic.Pointer[progress]

// tell shows how far it is.
func (p *progress) tell(how func() string) {
	if !showing.CompareAndSwap(nil, p) && showing.Load() != p {
		return
	}
	now := time.Now()
	if now.Sub(p.begun) < time.Second || now.Sub(p.shown) < 100*time.Millisecond || !isTerminal(os.Stderr) {
		return
	}
	p.shown = now
	fmt.Fprintf(os.Stderr, "\rreading: %s", how())
}

// end removes what was shown.
func (p *progress) end() {
	showing.CompareAndSwap(p, nil)
	if !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
