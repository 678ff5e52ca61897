// Command vm runs tests of ttmem on other kernels: it boots Debian's kernels in QEMU, with
// the real ttnn inside, and prints a table of the results.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"ttmem/e2e/rig"
)

const usage = `Tests ttmem on other kernels: boots Debian's kernels in QEMU and runs tests on the
real ttnn there.

Usage: vm [flags]

Examples:
  vm                             the kernels 6.1, 6.12, 6.18 and the newest one
  vm -kernel 6.12                one kernel
  vm -kernel 6.1,newest          two
  vm -form short                 the checks that continuous integration runs
  vm -kernel 6.1 -checks doctor  one check, to see why it fails
  vm -markdown table.md          writes the table as Markdown as well

Kernels and the guest's root are kept in $TTMEM_CACHE/vm (by default below the user's
cache directory). The exit status is 1 if a check failed.

Flags:
`

type options struct {
	kernels, form, checks string
	mirror                string
	markdown              string
	accel                 string
	jobs, cpus            int
}

func main() {
	var o options
	flag.StringVar(&o.kernels, "kernel", "6.1,6.12,6.18,newest", "series of kernels, or newest, with commas")
	flag.StringVar(&o.form, "form", "full", "which checks run: full or short")
	flag.StringVar(&o.checks, "checks", "", "names of checks, with commas (default: those of the form)")
	flag.StringVar(&o.mirror, "mirror", os.Getenv("MIRROR"), "`URL` of a mirror of Debian (default: $MIRROR, or the one that apt uses)")
	flag.StringVar(&o.markdown, "markdown", "", "`file` that gets the table as Markdown")
	flag.StringVar(&o.accel, "accel", "auto", "auto, kvm or tcg; auto takes KVM where a kernel boots with it")
	flag.IntVar(&o.jobs, "jobs", min(2, runtime.NumCPU()), "virtual machines at once")
	flag.IntVar(&o.cpus, "cpus", 1, "processors of each")
	flag.Usage = func() {
		fmt.Fprint(flag.CommandLine.Output(), usage)
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	ok, err := run(ctx, o)
	interrupted := ctx.Err() != nil
	stop()
	switch {
	case interrupted:
		fmt.Fprintln(os.Stderr, "vm: interrupted")
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	case !ok:
		os.Exit(1)
	}
}

// vm is shared by the virtual machines.
type vm struct {
	options
	cache   string // the rig's
	dir     string // below it: the cache of this command
	work    string // temporary files
	module  string // the sources
	env     *rig.Env
	archive *archive
	kernels *kernels
	list    []check
	image   string // of the root
	input   string // drive
	say     func(string, ...any)
}

// run reports whether every check passed.
func run(ctx context.Context, o options) (ok bool, err error) {
	if flag.NArg() > 0 {
		return false, fmt.Errorf("unexpected argument %s: see vm -h", flag.Arg(0))
	}
	v := &vm{options: o, say: progress(os.Stderr)}
	if v.list, err = selectChecks(o.form, o.checks); err != nil {
		return false, err
	}
	if o.accel != "auto" && o.accel != "kvm" && o.accel != "tcg" {
		return false, fmt.Errorf("-accel %s: choose auto, kvm or tcg", o.accel)
	}
	if v.cache, err = rig.CacheDir(); err != nil {
		return false, err
	}
	for _, own := range []string{"/tmp", "/run", "/vm", "/proc", "/sys", "/dev"} {
		if strings.HasPrefix(v.cache+"/", own+"/") {
			return false, fmt.Errorf("TTMEM_CACHE=%s: the guest has a %s of its own; name a folder elsewhere", v.cache, own)
		}
	}
	v.dir = filepath.Join(v.cache, "vm")
	unlock, err := rig.Lock(ctx, filepath.Join(v.dir, "lock"), func() { v.say("waiting for another vm to end") })
	if err != nil {
		return false, err
	}
	defer unlock()
	if v.work, err = os.MkdirTemp("", "ttmem-vm-"); err != nil {
		return false, err
	}
	defer os.RemoveAll(v.work)
	v.archive = &archive{filepath.Join(v.dir, "apt"), o.mirror}
	v.kernels = &kernels{dir: filepath.Join(v.dir, "kernels"), archive: v.archive, say: v.say}
	found, err := v.find(ctx)
	if err != nil {
		return false, err
	}
	if err := v.prepare(ctx); err != nil {
		return false, err
	}
	rows := v.bootAll(ctx, found)
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	return v.report(rows)
}

// find returns the requested kernels, each once.
func (v *vm) find(ctx context.Context) (found []kernel, err error) {
	seen := make(map[string]bool)
	for wanted := range strings.SplitSeq(v.options.kernels, ",") {
		k, err := v.kernels.find(ctx, strings.TrimSpace(wanted))
		if err != nil {
			return nil, err
		}
		if !seen[k.Version] {
			seen[k.Version] = true
			found = append(found, k)
		}
	}
	return found, nil
}

// prepare sets up ttnn, the guest's root and the drive with the tests.
func (v *vm) prepare(ctx context.Context) (err error) {
	if v.env, err = rig.Setup(ctx, rig.Options{Python: "3.10", Progress: os.Stderr}); err != nil {
		return err
	}
	module, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	v.module = strings.TrimSpace(module)
	if v.image, err = v.rootImage(ctx); err != nil {
		return err
	}
	v.input = filepath.Join(v.work, "input.tar")
	return v.writeInput(ctx)
}

func (v *vm) writeInput(ctx context.Context) error {
	files := map[string][]byte{
		"main.sh":     []byte(mainScript),
		"checks.sh":   []byte(checksScript),
		"list":        checkList(v.list),
		"environment": environment(os.Getenv("HOME"), v.cache, 20),
	}
	v.say("building ttmem and its tests")
	for name, args := range map[string][]string{
		"ttmem":           {"build", "-trimpath", "./cmd/ttmem"},
		"e2e.test":        {"test", "-c", "-trimpath", "-ldflags=-s -w", "./e2e"},
		"tracer.test":     {"test", "-c", "-trimpath", "-ldflags=-s -w", "./tracer"},
		"e2e/faults.test": {"test", "-c", "-trimpath", "-ldflags=-s -w", "./e2e/faults"},
	} {
		path := filepath.Join(v.work, filepath.Base(name))
		args = slices.Insert(args, 1, "-o", path)
		build := exec.CommandContext(ctx, "go", args...)
		build.Dir, build.Env, build.Stderr = v.module, append(os.Environ(), "CGO_ENABLED=0"), os.Stderr
		if err := runBound(build); err != nil {
			return fmt.Errorf("building %s: %w", name, err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		files[name] = text
	}
	f, err := os.Create(v.input)
	if err != nil {
		return err
	}
	defer f.Close()
	dirs := make(map[string]string)
	for _, dir := range []string{"e2e/programs", "e2e/faults/programs", "tracer/testdata/stack_native", "docs/service"} { // files that tests read
		dirs[dir] = filepath.Join(v.module, dir)
	}
	if err := writeInput(f, files, dirs); err != nil {
		return err
	}
	return f.Close()
}

// bootAll boots the kernels, several at once.
func (v *vm) bootAll(ctx context.Context, found []kernel) []row {
	rows := make([]row, len(found))
	slots := make(chan struct{}, max(1, v.jobs))
	var all sync.WaitGroup
	for i, k := range found {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if ctx.Err() == nil {
				rows[i] = v.boot(ctx, k)
			}
		})
	}
	all.Wait()
	return rows
}

// report prints the table and reports whether every check passed.
func (v *vm) report(rows []row) (ok bool, err error) {
	fmt.Print(textTable(v.list, rows))
	if text := failures(v.list, rows); text != "" {
		fmt.Print("\n", text)
	}
	fmt.Println(tally(rows))
	if v.markdown != "" {
		if err := os.WriteFile(v.markdown, []byte(markdownTable(v.list, rows)), 0o644); err != nil {
			return false, err
		}
	}
	for _, r := range rows {
		if !r.ok() {
			return false, nil
		}
	}
	return true, nil
}

// progress returns a printf of lines with the elapsed time.
func progress(w io.Writer) func(string, ...any) {
	start := time.Now()
	var mutex sync.Mutex
	return func(format string, args ...any) {
		mutex.Lock()
		defer mutex.Unlock()
		fmt.Fprintf(w, "%4.0f s  %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
}
