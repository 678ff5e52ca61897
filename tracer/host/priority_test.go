package host

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"testing"

	"github.com/go-quicktest/qt"
)

// The service's unit has the limit that raising the priority needs without CAP_SYS_NICE.
func TestUnitAllowsRaisedPriority(t *testing.T) {
	unit, err := os.ReadFile("../../docs/service/ttmem.service")
	qt.Assert(t, qt.IsNil(err))
	found := regexp.MustCompile(`(?m)^LimitNICE=(-\d+)$`).FindSubmatch(unit)
	qt.Assert(t, qt.IsNotNil(found))
	niceness := string(found[1])
	qt.Assert(t, qt.Equals(niceness, strconv.Itoa(raisedNiceness)))

	limited := func(command ...string) *exec.Cmd {
		return exec.Command("prlimit", append([]string{"--nice=" + strconv.Itoa(20-raisedNiceness)}, command...)...)
	}
	if limited("true").Run() != nil {
		t.Skip("needs CAP_SYS_RESOURCE")
	}
	out, err := limited("setpriv", "--reuid=65534", "--clear-groups", "--bounding-set=-all", "--inh-caps=-all",
		"sh", "-c", "exec renice -n "+niceness+" -p $$").CombinedOutput()
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
}
