package hostile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/cmd/ttmem/record"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// hostileRig is what attacks need: a victim, tracers, users and the programs that attack.
type hostileRig struct {
	env    *rig.Env
	victim *victim
	pair   *pair   // nil: to be started
	users  []*user // who attack
	// ordinary is the user of the victim, so that it has no larger share than the others.
	ordinary *user
	bin      string // folder of the programs
	context  map[string]any
	guarded  string // a folder that nobody may change
	before   string // its state
}

func newRig(t *testing.T) *hostileRig {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("attacking as other users needs root")
	}
	env, err := rig.Setup(context.Background(), rig.Options{Version: rig.DefaultVersion, Python: "3.10", Progress: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	r := &hostileRig{env: env, bin: filepath.Join(public, "programs"), guarded: filepath.Join(public, "guarded")}
	r.build(t)
	library := filepath.Join(public, "libtt_metal.so")
	if out, err := exec.Command("cp", env.Library, library).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r.context = map[string]any{"library": library, "forged": forged, "long": *tracetest.Long, "layout": layoutOf(t, library), "guarded": r.guarded}
	for n := range 3 {
		r.users = append(r.users, newUser(t, n))
	}
	r.ordinary = newUser(t, 3)
	if err := os.MkdirAll(filepath.Join(r.guarded, "ttnn-"+secret+".dist-info"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(r.guarded, "shadow"), []byte("root only\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.before = listing(r.guarded)
	r.victim = startVictim(t, env, r.ordinary)
	r.copyInterpreter(t)
	if _, err := r.victim.round(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if r.pair != nil {
			for _, f := range r.pair.stop() {
				t.Error(f)
			}
		}
	})
	return r
}

// build copies the programs that attack to a folder that all users can read, and compiles
// the one in C, which others load.
func (r *hostileRig) build(t *testing.T) {
	t.Helper()
	if err := os.Mkdir(r.bin, 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("programs/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		to := filepath.Join(r.bin, filepath.Base(file))
		cmd := exec.Command("install", "-m", "755", file, to)
		if name, c := strings.CutSuffix(to, ".c"); c {
			cmd = exec.Command("gcc", "-O1", "-Wall", "-shared", "-fPIC", "-pthread", "-o", name+".so", file)
		}
		if strings.HasPrefix(filepath.Base(file), "__") {
			continue
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
}

// mostMemory is the most that a tracer may take during an attack of one user.
const mostMemory = 500 << 20

// attack runs one attack, and returns what was wrong during and after it.
func (r *hostileRig) attack(t *testing.T, a attack) (failures []string) {
	t.Helper()
	if r.pair == nil {
		r.pair = startPair(t, r.victim)
		if f := r.check("at the beginning"); len(f) > 0 {
			t.Fatalf("without any attack: %q", f)
		}
	}
	if a.settled {
		time.Sleep(time.Until(r.pair.started.Add(startPatience)))
	}
	if r.pair.rootLimit = answerLimit; a.searched {
		r.pair.rootLimit = searchedLimit
	}
	for _, one := range []*tracer{r.pair.serve, r.pair.attach} {
		one.resetPeak()
	}
	early := 0
	if a.ended {
		var err error
		if early, err = r.endedBefore(a); err != nil {
			t.Fatal(err)
		}
	}
	lines := strings.Count(r.pair.serve.said(), "\n")
	u := r.users[a.user]
	p, err := r.start(a)
	defer func() {
		u.killAll()
		if p != nil {
			p.Wait()
			if said := p.said(); said != "" {
				t.Logf("the attack says: %s", said)
			}
			p.log.Close()
		}
		r.clear(u)
	}()
	if err != nil {
		t.Fatal(err) // the attack itself does not work here: not a pass, known or not
	}
	hold := a.hold
	if hold == 0 {
		hold = 400 * time.Millisecond
	}
	if _, known := knownToFail[a.name]; known {
		hold = max(hold, 5*time.Second) // the first failure ends it
	} else if *tracetest.Long {
		hold *= 5
	}
	during := func(hold time.Duration) {
		for began := time.Now(); len(failures) == 0 && time.Since(began) < hold; {
			failures = append(failures, r.check("during the attack")...)
		}
	}
	if a.flat {
		during(hold / 2)
		failures = append(failures, r.pair.grows(func() { during(hold / 2) })...)
	} else {
		during(hold)
	}
	if a.names && len(failures) == 0 {
		failures = append(failures, r.pair.viewAll()...)
	}
	if a.doctor && len(failures) == 0 {
		failures = append(failures, r.pair.doctor()...)
	}
	if a.newcomer && len(failures) == 0 {
		failures = append(failures, r.newcomer()...)
	}
	if a.unended {
		r.pair.attach.unread = true
		failures = append(failures, r.pair.stop()...)
		r.pair = nil
		return failures
	}
	if a.log != "" {
		return append(failures, r.endLogs(a.log, u.killAll)...)
	}
	u.killAll()
	if len(failures) == 0 {
		failures = append(failures, r.check("after the attack")...)
	}
	t.Logf("serve takes %d MiB, attach %d MiB", r.pair.serve.peakBytes()>>20, r.pair.attach.peakBytes()>>20)
	for _, one := range []*tracer{r.pair.serve, r.pair.attach} {
		if peak := one.peakBytes(); peak > mostMemory {
			failures = append(failures, fmt.Sprintf("%s took %d MiB", one.name, peak>>20))
		}
	}
	if n := strings.Count(r.pair.serve.said(), "\n") - lines; n > mostLines {
		failures = append(failures, fmt.Sprintf("serve's log has %d more lines", n))
	}
	if a.ended && len(failures) == 0 {
		if s, err := r.pair.snapshot(); err != nil || !slices.ContainsFunc(s.Processes, func(p memory.Process) bool { return p.PID == early }) {
			failures = append(failures, fmt.Sprintf("PID %d of another user, which ended before the attack, is not known any more (%v)", early, err))
		}
	}
	if strays := u.strays(); len(strays) > 0 {
		failures = append(failures, fmt.Sprintf("root wrote into the attacker's folder: %q", strays))
	}
	if after := listing(r.guarded); after != r.before {
		failures = append(failures, fmt.Sprintf("root's files changed from\n%s to\n%s", r.before, after))
		r.before = after
	}
	if a.restart || len(failures) > 0 && r.pair.recover(r.victim) != nil {
		failures = append(failures, r.pair.stop()...)
		r.pair = nil
	}
	return failures
}

// mostLines is how many lines of serve's log are about an attack.
const mostLines = 100

// endedBefore runs a program of another user that ends before an attack.
func (r *hostileRig) endedBefore(a attack) (pid int, err error) {
	other := attack{user: (a.user + 1) % len(r.users), program: "processes.py one_run"}
	p, err := r.start(other)
	if err != nil {
		return 0, err
	}
	err = p.Wait()
	p.log.Close()
	if !tracetest.Eventually(answerLimit*patience*20, func() bool {
		s, err := r.pair.snapshot()
		return err == nil && slices.ContainsFunc(s.Processes, func(one memory.Process) bool { return one.PID == p.Process.Pid && one.Exit != nil })
	}) {
		err = errors.Join(err, fmt.Errorf("the end of PID %d is not known", p.Process.Pid))
	}
	return p.Process.Pid, err
}

// clear empties a user's folder.
func (r *hostileRig) clear(u *user) {
	list, _ := os.ReadDir(u.home)
	for _, e := range list {
		path := filepath.Join(u.home, e.Name())
		for unix.Unmount(path, unix.MNT_DETACH) == nil {
		}
		os.RemoveAll(path)
	}
}

// check plays a round of the victim and compares what the tracers say of it.
func (r *hostileRig) check(when string) (failures []string) {
	fail := func(format string, args ...any) {
		failures = append(failures, when+": "+fmt.Sprintf(format, args...))
	}
	p := r.pair
	for _, one := range []*tracer{p.serve, p.attach} {
		if f := one.running(); f != "" {
			fail("%s", f)
		}
	}
	if len(failures) > 0 {
		return failures
	}
	want, err := r.victim.round()
	if err != nil {
		fail("%v", err)
		return failures
	}
	began := time.Now()
	late := func(limit time.Duration) bool { return tracetest.IsLate(time.Since(began), limit) }

	// the snapshot is exact within a second, and each answer takes less
	var differences []string
	for slow := 0; ; {
		asked := time.Now()
		s, err := p.snapshot()
		took := time.Since(asked)
		if err != nil {
			fail("serve does not answer: %v after %v", err, took.Round(time.Millisecond))
			break
		}
		if tracetest.IsLate(took, answerLimit) {
			if slow++; slow < tries {
				continue
			}
			fail("serve answers after %v", took.Round(time.Millisecond))
			break
		}
		if differences = compareSnapshot(s, r.victim.Process.Pid, want); len(differences) == 0 || late(answerLimit) {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, d := range differences {
		fail("%s", d)
	}
	// the events are those of the victim, all of them; they are in the recording after its next flush
	for {
		if err := p.follower.read(); err != nil {
			fail("events: %v", err)
			break
		}
		if p.follower.newest > want.TimeNs {
			for _, d := range p.follower.compare(want) {
				fail("%s", d)
			}
			break
		}
		if late(answerLimit + record.FlushInterval) {
			fail("events: not there after %v", time.Since(began).Round(time.Millisecond))
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	for _, l := range p.follower.lost {
		fail("lost: %s", l)
	}
	p.follower.lost = nil
	for _, f := range p.nextView() {
		fail("%s", f)
	}
	for _, one := range []*tracer{p.serve, p.attach} {
		if n := one.peakBytes(); n > residentLimit {
			fail("%s takes %d MiB", one.name, n>>20)
		}
		if why := unclean([]byte(one.said())); why != "" {
			fail("%s says %s", one.name, why)
		}
	}
	return failures
}

// listing describes the files of a folder.
func listing(dir string) string {
	var list []string
	_ = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if info, err := os.Lstat(path); err == nil {
			var text []byte
			if info.Mode().IsRegular() {
				text, _ = os.ReadFile(path)
			}
			list = append(list, fmt.Sprintf("%s %v %d %s %.40q", path, info.Mode(), info.Size(), info.ModTime(), text))
		}
		return nil
	})
	slices.Sort(list)
	return strings.Join(list, "\n")
}
