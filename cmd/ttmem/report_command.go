package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"
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
	c.ValidArgsFunction = completeRecordings
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
	if errors.Is(err, service.ErrNone) {
		return fmt.Errorf("%w, or give a recording: ttmem report FILE", err)
	}
	if err != nil {
		return err
	}
	defer client.Close()
	snapshot, err := client.Snapshot(c.Context())
	if err != nil {
		return err
	}
	// The snapshot has what other users take as well, and the state what the call
	// stacks are that processes hold memory from.
	present, err := presentOfService(c.Context(), client, socket)
	if err != nil {
		return err
	}
	snapshot = present.WithHolders(snapshot)
	snapshot.TimeNs = monotonicNow()
	how := reportOptionsFor(os.Stdout)
	how.Live = true
	return printAsked(os.Stdout, snapshot, o.output.json, how)
}

// printAsked prints a report that was asked for.
func printAsked(to *os.File, snapshot *aggregate.Snapshot, asJSON bool, how reportOptions) error {
	if asJSON {
		return json.NewEncoder(os.Stdout).Encode(snapshot)
	}
	return writeReport(to, snapshot, how)
}

// showReport makes everything that is asked for from a file.
func showReport(o sessionOptions, path string) error {
	// before anything is opened for writing
	if err := checkOutputs(o, path); err != nil {
		return err
	}
	r, err := openRecorded(path)
	if err != nil {
		return err
	}
	defer r.close()
	if r.private {
		keepPrivate() // what is made of it is for whom it is
	}
	var lines *eventFile
	if o.output.events != "" {
		if lines, err = createEventCopy(o.output.events); err != nil {
			return err
		}
	}
	defer lines.discard()
	x, err := newExporter(o.exports)
	if err != nil {
		return err
	}
	defer x.close()

	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	reading, cancel := context.WithCancel(ctx)
	defer cancel()
	var failure error // of lines
	if lines == nil && x == nil {
		if _, err := r.last(); err != nil {
			return err
		}
	}
	state := aggregate.New()
	state.Begin(r.began)
	events, damage := r.play(reading, applying(state, func(e *event.Event) {
		if lines != nil && failure == nil {
			lines.add(e)
			if lines.full() {
				if failure = lines.flush(); failure != nil {
					cancel()
				}
			}
		}
		if x != nil {
			x.profile.Apply(e)
		}
	}), func() {})
	switch {
	case ctx.Err() != nil:
		return errInterrupted
	case failure != nil:
		return failure
	case damage != nil && events == 0:
		return damage
	case damage != nil:
		warn(damage.Error())
	case !r.ended():
		warn(path + " has no end: it is still being written, or its writer was killed, or its disk was full")
	}
	if lines != nil {
		if err := lines.close(); err != nil {
			return err
		}
	}
	state.Advance(r.over())
	snapshot := state.WithHolders(state.Snapshot())
	snapshot.Stacks = r.stacks()
	to := os.Stdout
	if o.takesStdout() {
		to = os.Stderr
	}
	if err := printAsked(to, snapshot, o.output.json, reportOptionsFor(to)); err != nil {
		return err
	}
	if x != nil && !x.write() {
		return exitStatus(1)
	}
	// to be cut short is no damage: its writer was killed, or its disk was full
	if damage != nil && !errors.Is(damage, io.ErrUnexpectedEOF) {
		return exitStatus(1)
	}
	return nil
}

// checkOutputs is an error where writing would destroy what is read, under whatever
// name.
func checkOutputs(o sessionOptions, path string) error {
	in, err := os.Stat(path)
	if err != nil || !in.Mode().IsRegular() {
		return nil
	}
	if out, err := os.Stdout.Stat(); err == nil && os.SameFile(in, out) {
		return fmt.Errorf("standard output is %s, the file that is read: write to another", path)
	}
	targets := append(o.exports.targets(), exportTarget{flag: "--events", path: o.output.events})
	for _, t := range targets {
		if out, err := os.Stat(t.path); err == nil && os.SameFile(in, out) {
			return fmt.Errorf("%s %s is the file that is read: name another", t.flag, t.path)
		}
	}
	return nil
}

// takesStdout reports whether a file that is asked for is standard output.
func (o *sessionOptions) takesStdout() bool {
	out, err := os.Stdout.Stat()
	if err != nil {
		return false
	}
	for _, t := range append(o.exports.targets(), exportTarget{path: o.output.events}) {
		if t.path == "-" {
			return true
		}
		if info, err := os.Stat(t.path); err == nil && os.SameFile(info, out) {
			return true
		}
	}
	return false
}

// recorded is a file of events.
type recorded struct {
	name string
	// part is what a file is made of: a block, or a line.
	part string
	// private is true where the file is for its owner and his group alone.
	private bool
	next    func(*event.Event) error
	// last goes on at the last checkpoint, and reports whether there is one: for who
	// wants the state at the end, and not all events.
	last func() (bool, error)
	// left begins again with what tells of buffers that nobody freed. It is to be
	// called where there is a last checkpoint.
	left   func() error
	stacks func() *aggregate.Stacks
	// began and over are when recording began and ended, 0 where it is not known.
	began uint64
	over  func() uint64
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
		return nil, withoutEvents(err, path, "header")
	}
	return &recorded{
		name: path, part: "block", private: isPrivate(path),
		next: f.Next, last: f.Last, left: f.Left, close: f.Close, done: f.Offset, size: f.Size(),
		began: f.Header().MonotonicNs,
		over:  func() uint64 { end, _ := f.End(); return end.TimeNs },
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

// isPrivate reports whether a file is for some users only.
func isPrivate(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o004 == 0
}

// openEventLines opens a file that begins as JSON does; it is nil for another one.
func openEventLines(path string) (*recorded, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("there is no such file: %s; `ttmem record -o FILE` makes a recording", path)
	case errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0:
		return nil, fmt.Errorf("%s: permission denied; who recorded it, or root with sudo, can read it", path)
	case err != nil:
		return nil, fmt.Errorf("%s: %w; name a file that can be read", path, pathless(err))
	}
	var first [1]byte
	info, err := f.Stat()
	if n, _ := f.ReadAt(first[:], 0); err != nil || n == 0 || first[0] != '{' {
		f.Close()
		return nil, nil
	}
	lines := event.NewReader(f)
	return &recorded{
		name: path, part: "line", private: isPrivate(path),
		next: func(e *event.Event) (err error) {
			*e, err = lines.Next()
			switch {
			case err == nil, errors.Is(err, io.EOF):
				return err
			case errors.Is(err, io.ErrUnexpectedEOF):
				return cutError(path + " is cut short in its last line: what came before was read")
			}
			// what is wrong with its JSON is in the words of Go
			line, _, _ := strings.Cut(err.Error(), ":")
			var syntax *json.SyntaxError
			var types *json.UnmarshalTypeError
			if errors.As(err, &syntax) || errors.As(err, &types) {
				return fmt.Errorf("%s: %s is not an event record: what follows is not read", path, line)
			}
			return fmt.Errorf("%s: %w", path, err)
		},
		last:   func() (bool, error) { return false, nil },
		close:  f.Close,
		done:   func() int64 { n, _ := f.Seek(0, io.SeekCurrent); return n },
		size:   info.Size(),
		stacks: func() *aggregate.Stacks { return nil },
		over:   func() uint64 { return 0 },
		ended:  func() bool { return true }, // lines have no end
	}, nil
}

// A cutError says that a file ends too early, which is no damage.
type cutError string

func (e cutError) Error() string { return string(e) }

// Unwrap is io.ErrUnexpectedEOF.
func (e cutError) Unwrap() error { return io.ErrUnexpectedEOF }

// withoutEvents is an error of reading a file before its first event: nothing came
// before, as the error may say otherwise.
func withoutEvents(err error, name, part string) error {
	var damaged *recording.DamagedError
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return cutError(fmt.Sprintf("%s is cut short in its %s: nothing in it can be read", name, part))
	case errors.As(err, &damaged):
		return fmt.Errorf("%s is damaged in its %s (%s): nothing in it can be read", name, part, damaged.Cause)
	}
	return err
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
		if p.size == 0 { // a pipe
			return formatBytes(uint64(done))
		}
		return fmt.Sprintf("%3d %% of %s", 100*done/p.size, formatBytes(uint64(p.size)))
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
