package kernel

// This file finds the identities of programs in processes that user space finds: see exec_id in
// bpf/src/records.h.

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"ttmem/bpf"
)

// ExecID returns the exec_id of the program that a process runs now. The error is unix.ESRCH if the
// process has ended.
func (o *Objects) ExecID(pid int) (uint64, error) {
	list, err := o.openPrograms(pid)
	if errors.Is(err, unix.E2BIG) { // before Linux 6.1 it lists all threads of the host
		list, err = o.openPrograms(0)
	}
	if err != nil {
		return 0, fmt.Errorf("listing programs: %w", err)
	}
	defer list.Close()
	var p bpf.KernelProgramOf
	for b := unsafe.Slice((*byte)(unsafe.Pointer(&p)), unsafe.Sizeof(p)); ; {
		switch _, err := io.ReadFull(list, b); {
		case err == io.EOF:
			return 0, unix.ESRCH
		case err != nil:
			return 0, fmt.Errorf("listing programs: %w", err)
		case int(p.Tgid) == pid && p.ExecId != 0:
			return p.ExecId, nil
		}
	}
}

// openPrograms lists the programs of the threads of a process, or of all processes if pid is 0.
// cilium/ebpf cannot limit an iterator to a process.
func (o *Objects) openPrograms(pid int) (*os.File, error) {
	of := struct{ tid, pid, pidFD uint32 }{pid: uint32(pid)} // union bpf_iter_link_info
	attach := struct {
		program, target, kind, flags uint32
		of                           uint64
		ofBytes                      uint32
	}{program: uint32(o.ListPrograms.FD()), kind: unix.BPF_TRACE_ITER}
	if pid != 0 {
		attach.of, attach.ofBytes = uint64(uintptr(unsafe.Pointer(&of))), uint32(unsafe.Sizeof(of))
	}
	link, err := bpfCall(unix.BPF_LINK_CREATE, unsafe.Pointer(&attach), unsafe.Sizeof(attach))
	runtime.KeepAlive(&of)
	if err != nil {
		return nil, err
	}
	defer unix.Close(link)
	create := struct{ link, flags uint32 }{link: uint32(link)}
	fd, err := bpfCall(unix.BPF_ITER_CREATE, unsafe.Pointer(&create), unsafe.Sizeof(create))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "programs"), nil
}

func bpfCall(command int, attr unsafe.Pointer, bytes uintptr) (fd int, err error) {
	n, _, errno := unix.Syscall(unix.SYS_BPF, uintptr(command), uintptr(attr), bytes)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// A Program is a program in a process, from its fork or exec to the next exec or its end. Of two programs
// of a process, the later one has the larger ExecID. An ExecID of 0 is not known, and of the oldest.
type Program struct {
	PID    int
	ExecID uint64
}

// AddProcess adds a process to the kernel side's list, which reports its end from then on, and returns
// its program. The error is unix.ESRCH if it has ended.
func (o *Objects) AddProcess(pid int, flags uint32) (Program, error) {
	p := Program{PID: pid}
	for range 3 {
		var err error
		if p.ExecID, err = o.ExecID(pid); err != nil {
			return p, err
		}
		err = o.Processes.Update(uint32(pid), &bpf.KernelProcess{ExecId: p.ExecID, Flags: flags}, ebpf.UpdateNoExist)
		if err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return p, err
		}
		now, err := o.ExecID(pid)
		if err == nil && now == p.ExecID && o.ChangeProcess(p, flags, 0) {
			return p, nil
		}
		// It has ended or executed another program meanwhile. If it had ended before its entry was made,
		// nothing else removes the entry.
		if now != p.ExecID && o.Runs(p) {
			_ = o.Processes.Delete(uint32(pid))
		}
		if err != nil {
			return p, err
		}
	}
	return p, unix.EAGAIN
}

// Runs reports whether a process is listed with a program: it has not ended, and not executed another one.
func (o *Objects) Runs(p Program) bool {
	var listed bpf.KernelProcess
	return o.Processes.Lookup(uint32(p.PID), &listed) == nil && listed.ExecId == p.ExecID
}

// Lists reports whether a process is in the kernel side's list.
func (o *Objects) Lists(pid int) bool {
	return o.Processes.Lookup(uint32(pid), new(bpf.KernelProcess)) == nil
}

// Listed returns the processes in the list.
func (o *Objects) Listed() (pids []int) {
	var pid uint32
	for list := o.Processes.Iterate(); list.Next(&pid, new(bpf.KernelProcess)); {
		pids = append(pids, int(pid))
	}
	return pids
}

// ChangeProcess sets flags and, if it is not 0, the slot of the space of a listed process. It reports
// whether the process still runs the program.
func (o *Objects) ChangeProcess(p Program, flags, space uint32) bool {
	done, err := o.OnChange.Run(&ebpf.RunOptions{Context: [4]uint64{uint64(p.PID), p.ExecID, uint64(flags), uint64(space)}})
	return err == nil && done == 1
}

// ForgetPrograms removes the tt-metal programs of a process, which are reported again when they run.
func (o *Objects) ForgetPrograms(pid int) error {
	o.forgetting.Lock()
	defer o.forgetting.Unlock()
	err := o.Forgotten.Set(uint32(pid))
	if err == nil {
		err = o.ForgetObjects()
	}
	return errors.Join(err, o.Forgotten.Set(uint32(0)))
}

// ForgetObjects removes the objects of processes that have ended.
func (o *Objects) ForgetObjects() error {
	for {
		if left, err := o.OnEnded.Run(&ebpf.RunOptions{}); err != nil || left == 0 {
			return err
		}
	}
}
