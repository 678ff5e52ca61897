package host

import (
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// The service's unit has the limit that raising the priority needs without CAP_SYS_NICE.
func TestUnitAllowsRaisedPriority(t *testing.T) {
	unit, err := os.ReadFile("../../docs/service/ttmem.service")
	qt.Assert(t, qt.IsNil(err))
	found := regexp.MustCompile(`(?m)^LimitNICE=(-\d+)$`).FindSubmatch(unit)
	qt.Assert(t, qt.IsNotNil(found))
	niceness := string(found[1])
	qt.Assert(t, qt.Equals(niceness, strconv.Itoa(RaisedNiceness)))

	limited := func(command ...string) *exec.Cmd {
		return exec.Command("prlimit", append([]string{"--nice=" + strconv.Itoa(20-RaisedNiceness)}, command...)...)
	}
	if limited("true").Run() != nil {
		t.Skip("needs CAP_SYS_RESOURCE")
	}
	out, err := limited("setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
		"sh", "-c", "exec renice -n "+niceness+" -p $$").CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}

// Threads that exist are raised and those to come, until tracing ends; and one that does what can wait is not.
func TestRaisedPriority(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	of := func() (all []int) {
		threads, err := os.ReadDir("/proc/self/task")
		qt.Assert(t, qt.IsNil(err))
		for _, thread := range threads {
			id, _ := strconv.Atoi(thread.Name())
			all = append(all, niceness(id))
		}
		slices.Sort(all)
		return slices.Compact(all)
	}
	highest := func(call func(func())) int {
		done := make(chan int)
		for range 32 { // each has a thread of its own
			go call(func() {
				runtime.LockOSThread()
				time.Sleep(10 * time.Millisecond)
				done <- niceness(unix.Gettid())
				runtime.UnlockOSThread()
			})
		}
		most := RaisedNiceness
		for range 32 {
			most = max(most, <-done)
		}
		return most
	}
	here := func(f func()) { f() }
	restore := RaisePriority()
	defer restore()
	qt.Check(t, qt.DeepEquals(of(), []int{RaisedNiceness}))
	qt.Check(t, qt.Equals(highest(here), RaisedNiceness))
	qt.Check(t, qt.Equals(highest(WithoutPriority), 0))
	qt.Check(t, qt.Equals(highest(here), RaisedNiceness))
	restore()
	qt.Check(t, qt.DeepEquals(of(), []int{0}))
}

// Without a privilege, perf's buffers need a limit that most users do not have, and that the unit
// has.
func TestUnitAllowsPerfBuffers(t *testing.T) {
	const limited = "TTMEM_TEST_LIMITED"
	if os.Getenv(limited) != "" {
		_, err := WatchMappings()
		qt.Assert(t, qt.ErrorMatches(err, "watching for mapped libraries: mapping perf's buffer: operation not permitted: .* RLIMIT_MEMLOCK .*"))
		return
	}
	unit, err := os.ReadFile("../../docs/service/ttmem.service")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(string(unit), "\nLimitMEMLOCK=infinity\n"))
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	test := exec.Command("prlimit", "--memlock=4096:4096", "setpriv", "--bounding-set=-all,+perfmon", "--reuid=65534", "--clear-groups",
		"--inh-caps=-all,+perfmon", "--ambient-caps=-all,+perfmon", os.Args[0], "-test.run", "^TestUnitAllowsPerfBuffers$")
	test.Env = append(os.Environ(), limited+"=1")
	out, err := test.CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}
