package kernel

import (
	"os"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

func TestPrivilegesNameWhatIsMissing(t *testing.T) {
	if os.Geteuid() != 0 || !Privileges().OK {
		t.Skip("needs root, who can do without")
	}
	runtime.LockOSThread() // a thread has capabilities of its own
	defer runtime.UnlockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var all [2]unix.CapUserData
	qt.Assert(t, qt.IsNil(unix.Capget(&header, &all[0])))
	defer func() { qt.Assert(t, qt.IsNil(unix.Capset(&header, &all[0]))) }()
	only := func(bits ...int) {
		some := all
		some[0].Effective, some[1].Effective = 0, 0
		for _, bit := range bits {
			some[bit/32].Effective |= 1 << (bit % 32)
		}
		qt.Assert(t, qt.IsNil(unix.Capset(&header, &some[0])))
	}
	for _, c := range []struct {
		has    []int
		ok     bool
		detail string
	}{
		{[]int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH, unix.CAP_LEASE}, true, "root"},
		{[]int{unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE, unix.CAP_DAC_READ_SEARCH}, true,
			"all but CAP_LEASE (delay a program that overwrites a traced library in place)"},
		{[]int{unix.CAP_BPF, unix.CAP_PERFMON, unix.CAP_CHECKPOINT_RESTORE, unix.CAP_SYS_PTRACE}, false,
			"missing: CAP_DAC_READ_SEARCH (read libraries and processes that are not open to all); give a container --privileged"},
	} {
		only(c.has...)
		f := Privileges()
		qt.Check(t, qt.Equals(f.OK, c.ok))
		qt.Check(t, qt.Equals(f.Detail, c.detail))
		qt.Check(t, qt.Equals(checkPrivileges() == nil, c.ok))
	}
}
