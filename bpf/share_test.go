package bpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"
)

// The objects of processes that have ended, or execute another program, are removed, a part at a time,
// and no longer count for their user.
func TestObjectsOfEndedProcesses(t *testing.T) {
	spec := loadSpec(t)
	var objs struct {
		OnEnded   *ebpf.Program `ebpf:"on_ended"`
		Objects   *ebpf.Map     `ebpf:"objects"`
		Processes *ebpf.Map     `ebpf:"processes"`
		Users     *ebpf.Map     `ebpf:"users"`
	}
	qt.Assert(t, qt.IsNil(spec.LoadAndAssign(&objs, nil)))
	defer objs.OnEnded.Close()
	defer objs.Objects.Close()
	defer objs.Processes.Close()
	defer objs.Users.Close()

	const most, tenant = int(KernelObjectLimitOBJECTS_A_USER), uint64(1000)
	const living, executed = 1, 3 // and 2 has ended
	for tgid, execID := range map[uint32]uint64{living: 10, executed: 31} {
		qt.Assert(t, qt.IsNil(objs.Processes.Put(tgid, KernelProcess{ExecId: execID})))
	}
	var keys []KernelObjectKey
	var values []KernelObject
	for i := range most {
		tgid := uint32(i%3 + 1)
		keys = append(keys, KernelObjectKey{Tgid: tgid, ExecId: 10 * tgid, Object: uint64(8 * i)})
		values = append(values, KernelObject{User: tenant, Tgid: tgid})
	}
	qt.Assert(t, qt.IsNil(objs.Users.Put(tenant, KernelUser{Objects: uint32(most)})))
	_, err := objs.Objects.BatchUpdate(keys, values, nil)
	qt.Assert(t, qt.IsNil(err))

	const idle = uint64(2000)
	qt.Assert(t, qt.IsNil(objs.Users.Put(idle, KernelUser{Lap: 1})))

	begin := time.Now()
	runs, longest := 0, time.Duration(0)
	for more := uint32(1); more != 0; runs++ {
		began := time.Now()
		more, err = objs.OnEnded.Run(&ebpf.RunOptions{})
		qt.Assert(t, qt.IsNil(err))
		longest = max(longest, time.Since(began))
	}
	t.Logf("%d objects take %v, %v at once", most, time.Since(begin), longest)
	qt.Check(t, qt.Equals(runs, most*2/3/2048+1))

	left := 0
	var value KernelObject
	for _, key := range keys {
		if objs.Objects.Lookup(key, &value) == nil {
			left++
			qt.Assert(t, qt.Equals(key.Tgid, living))
		}
	}
	qt.Check(t, qt.Equals(left, (most+2)/3))
	var user KernelUser
	qt.Assert(t, qt.IsNil(objs.Users.Lookup(tenant, &user)))
	qt.Check(t, qt.Equals(int(user.Objects), left))
	qt.Check(t, qt.ErrorIs(objs.Users.Lookup(idle, &user), ebpf.ErrKeyNotExist)) // it uses nothing
}
