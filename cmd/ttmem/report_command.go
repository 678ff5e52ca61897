package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/event"
	"ttmem/tracer/recording"
)

func newReport() *cobra.Command {
	var o sessionOptions
	var socket string
	c := &cobra.Command{
		Use:   "report [FILE]",
		Short: "Show what a recording has, or what ttmem serve sees",
		Long: `Prints what the processes of a recording used of each chip's memory, at the peak
and at the end, as ttmem run does for a command. FILE is what ttmem record made, or
a file of events (ttmem run --events).

Without a file it asks the service of this host (ttmem serve), which shows root
everything, and a user his own processes and what others take of each chip.`,
		Example: `  ttmem report model.ttmem
  ttmem report                          # what ttmem serve sees
  ttmem report model.ttmem --json | jq .devices
  ttmem report model.ttmem --flamegraph memory.html
  ttmem report model.ttmem --events events.jsonl`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 1 {
				return errors.New("one recording at a time: ttmem report model.ttmem")
			}
			return nil
		},
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return reportService(c, o, socket)
			}
			if c.Flags().Changed("socket") {
				return errors.New("a file and --socket: one or the other")
			}
			return showReport(o, args[0])
		},
	}
	o.registerOutput(c)
	c.Flags().StringVar(&socket, "socket", service.DefaultSocket, "ask the service at `PATH`")
	return c
}

// reportService prints what the host's service sees.
func reportService(c *cobra.Command, o sessionOptions, socket string) error {
	for _, flag := range []string{"events", "flamegraph", "pprof", "folded"} {
		if c.Flags().Changed(flag) {
			return fmt.Errorf("--%s is made of events, which a service does not keep: have it record (ttmem serve --record FILE) and give the file", flag)
		}
	}
	client, err := service.Dial(socket)
	if err != nil {
		return err
	}
	defer client.Close()
	snapshot, err := client.Snapshot(c.Context())
	if err != nil {
		return err
	}
	return printSnapshot(snapshot, o.output.json)
}

func showReport(o sessionOptions, path string) error {
	r, err := openRecorded(path)
	if err != nil {
		return err
	}
	defer r.close()
	s, err := newSession(o, r.stacks)
	if err != nil {
		return err
	}
	defer s.close()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	events, damage := r.play(ctx, s.handle, s.flush)
	if ctx.Err() != nil {
		return errors.New("interrupted")
	}
	if damage != nil && events == 0 {
		return damage
	}
	switch {
	case damage != nil:
		warn(damage.Error())
	case !r.ended():
		warn(path + " has no end: it is still being written, or its writer was killed")
	}
	if err := s.report(); err != nil {
		return err
	}
	// to be cut short is no damage: its writer was killed, or its disk was full
	if s.failed || damage != nil && !errors.Is(damage, io.ErrUnexpectedEOF) {
		return exitStatus(1)
	}
	return nil
}

// recorded is a file of events.
type recorded struct {
	next   func(*event.Event) error
	stacks func() *aggregate.Stacks
	// ended reports whether what was read ends as its writer meant it to.
	ended func() bool
	close func() error
	// done and size are how much of the file was read, and how much there is.
	done func() int64
	size int64
}

// openRecorded opens a recording, or a file of JSON lines.
func openRecorded(path string) (*recorded, error) {
	if f, err := openEventLines(path); f != nil || err != nil {
		return f, err
	}
	f, err := recording.Open(path)
	if err != nil {
		return nil, err
	}
	return &recorded{
		next: f.Next, close: f.Close, done: f.Offset, size: f.Size(),
		ended: func() bool { _, ok := f.End(); return ok },
		stacks: func() *aggregate.Stacks {
			end, ok := f.End()
			if !ok || !end.HasStacks {
				return nil
			}
			return &aggregate.Stacks{
				Taken: end.Taken, Python: end.Python,
				Incomplete: end.Incomplete, IncompletePython: end.IncompletePython,
			}
		},
	}, nil
}

// openEventLines opens a file that begins as JSON does; it is nil for another one.
func openEventLines(path string) (*recorded, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, pathless(err))
	}
	var first [1]byte
	info, err := f.Stat()
	if n, _ := f.ReadAt(first[:], 0); err != nil || n == 0 || first[0] != '{' {
		f.Close()
		return nil, nil
	}
	lines := event.NewReader(f)
	return &recorded{
		next: func(e *event.Event) (err error) {
			if *e, err = lines.Next(); err != nil && !errors.Is(err, io.EOF) {
				err = fmt.Errorf("%s: %w", path, err)
			}
			return err
		},
		close:  f.Close,
		done:   func() int64 { n, _ := f.Seek(0, io.SeekCurrent); return n },
		size:   info.Size(),
		stacks: func() *aggregate.Stacks { return nil },
		ended:  func() bool { return true }, // lines have no end
	}, nil
}

// play gives the events to handle until their end, or until they are damaged, and
// counts them; pause is called now and then.
func (r *recorded) play(ctx context.Context, handle func(*event.Event), pause func()) (n int, err error) {
	p := newProgress(r.size)
	defer p.end()
	var e event.Event
	for ; ctx.Err() == nil; n++ {
		if n%4096 == 0 {
			p.show(r.done())
			pause()
		}
		err := r.next(&e)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return n, err
		}
		handle(&e)
	}
	return n, nil
}

// progress shows on a terminal how far something got that takes over a second.
type progress struct {
	size  int64
	begun time.Time
	shown time.Time
}

func newProgress(size int64) *progress { return &progress{size: size, begun: time.Now()} }

func (p *progress) show(done int64) {
	p.tell(func() string {
		return fmt.Sprintf("%3d %% of %s", 100*done/max(p.size, 1), formatBytes(uint64(p.size)))
	})
}

// tell shows how far it is.
func (p *progress) tell(how func() string) {
	now := time.Now()
	if now.Sub(p.begun) < time.Second || now.Sub(p.shown) < 100*time.Millisecond || !term.IsTerminal(int(os.Stderr.Fd())) {
		return
	}
	p.shown = now
	fmt.Fprintf(os.Stderr, "\rreading: %s", how())
}

// end removes what was shown.
func (p *progress) end() {
	if !p.shown.IsZero() {
		fmt.Fprint(os.Stderr, "\r\033[K")
	}
}
