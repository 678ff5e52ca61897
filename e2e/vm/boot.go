package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	guestMemory = 2048     // MiB
	outputSize  = 64 << 20 // of the drive
	bootLimit   = 3 * time.Minute
	endLimit    = time.Minute
)

// boot runs the checks on a kernel.
func (v *vm) boot(ctx context.Context, k kernel) row {
	r := row{kernel: series(k.Version), version: k.Version, logs: filepath.Join(v.dir, "logs", k.Version)}
	results, err := v.runChecks(ctx, k, &r)
	if err != nil {
		r.failure = err.Error()
	}
	for _, c := range v.list {
		res := results[c.name]
		if res != nil {
			os.WriteFile(filepath.Join(r.logs, c.name+".log"), []byte(res.output), 0o644)
		}
		r.cells = append(r.cells, c.cell(res))
	}
	if r.ok() {
		os.RemoveAll(r.logs)
	}
	return r
}

// boots bounds how often a kernel is booted: again only after a fault of the emulator, for
// the remaining checks.
const boots = 4

// runChecks returns the results of the completed checks, and why the others did not
// complete.
func (v *vm) runChecks(ctx context.Context, k kernel, r *row) (map[string]*result, error) {
	results := make(map[string]*result)
	if err := errors.Join(os.RemoveAll(r.logs), os.MkdirAll(r.logs, 0o755)); err != nil {
		return results, err
	}
	log, err := os.Create(filepath.Join(r.logs, "console.log"))
	if err != nil {
		return results, err
	}
	defer log.Close()
	work := filepath.Join(v.work, k.Version)
	if err := os.Mkdir(work, 0o755); err != nil {
		return results, err
	}
	m := machine{
		kernel: v.kernels.path(k, "vmlinuz"), initramfs: filepath.Join(work, "initramfs.cpio"),
		memory: guestMemory, cpus: v.cpus, log: log,
		marked: v.progressOf(k), limit: v.limits,
	}
	if err := writeInitramfs(ctx, work, v.kernels.path(k, "modules"), m.initramfs); err != nil {
		return results, err
	}
	if m.accelerator, err = v.accelerator(ctx, k, m); err != nil {
		return results, err
	}
	for _, kind := range machineKinds {
		err = errors.Join(err, v.bootFor(ctx, k, m, kind, filepath.Join(work, "output"), r, results))
	}
	return results, err
}

// bootFor runs the checks that need a kind of machine.
func (v *vm) bootFor(ctx context.Context, k kernel, m machine, kind machineKind, out string, r *row, results map[string]*result) error {
	if !slices.ContainsFunc(v.list, func(c check) bool { return c.machine == kind }) {
		return nil
	}
	for boot := 1; ; boot++ {
		v.say("%s: booting (%s)", k.Version, m.accelerator.name)
		err := v.runMachine(ctx, k, m, kind, out, r, results)
		if !errors.Is(err, errEmulator) || boot == boots {
			return err
		}
		v.say("%s: booting again: %v", k.Version, err)
	}
}

// runMachine runs the checks that have no result yet.
func (v *vm) runMachine(ctx context.Context, k kernel, m machine, kind machineKind, out string, r *row, results map[string]*result) error {
	if err := errors.Join(os.WriteFile(out, nil, 0o644), os.Truncate(out, outputSize)); err != nil {
		return err
	}
	m.drives = []string{
		"file=" + v.image + ",format=raw,if=virtio,snapshot=on",
		"file=" + v.input + ",format=raw,if=virtio,readonly=on",
		"file=" + out + ",format=raw,if=virtio,cache=unsafe",
	}
	var names []string
	for _, c := range v.list {
		if results[c.name] == nil && c.machine == kind {
			names = append(names, c.name)
		}
	}
	m.arguments = "ttmem.checks=," + strings.Join(names, ",") + ", " + kind.arguments
	m.cpus = max(m.cpus, kind.cpus)
	if m.accelerator.name == tcg.name && compareVersions(k.Version, withoutLock) < 0 {
		m.arguments += " clearcpuid=141"
	}
	runErr := m.run(ctx)
	drive, err := os.ReadFile(out)
	if err != nil {
		return err
	}
	version, ran, whole := readOutput(drive)
	maps.Copy(results, ran)
	if version != "" {
		r.version = version
	}
	if runErr == nil && !whole {
		return fmt.Errorf("%w: not all checks were run", errEarly)
	}
	return runErr
}

// withoutLock is the first kernel that allocates memory for BPF programs without a lock,
// for which it needs the instruction cmpxchg16b (feature 141). Older kernels work without
// it, which avoids a bug of QEMU 7.2.
const withoutLock = "6.18"

// accelerator chooses what runs a kernel.
func (v *vm) accelerator(ctx context.Context, k kernel, m machine) (accelerator, error) {
	if v.accel == "tcg" {
		return tcg, nil
	}
	if _, err := os.Stat("/dev/kvm"); err != nil && v.accel == "auto" {
		return tcg, nil
	}
	switch works := kvmWorks(ctx, m); {
	case works:
		return kvm, nil
	case ctx.Err() != nil:
		return accelerator{}, ctx.Err()
	case v.accel == "kvm":
		return accelerator{}, errors.New("it does not boot with KVM: use -accel tcg")
	}
	v.say("%s: it does not boot with KVM, which is there; it is emulated", k.Version)
	return tcg, nil
}

// limits bound the time from one mark of a guest to the next.
func (v *vm) limits(last []string) time.Duration {
	switch {
	case len(last) < 2 || last[0] == "started":
		return bootLimit
	case last[0] == "begin":
		for _, c := range v.list {
			if c.name == last[1] {
				return c.limit + endLimit
			}
		}
	}
	return endLimit
}

// progressOf reports a guest's progress on standard error.
func (v *vm) progressOf(k kernel) func(words []string) {
	return func(words []string) {
		switch {
		case words[0] == "started":
			v.say("%s: started", k.Version)
		case words[0] == "end" && len(words) == 4:
			how := "passed"
			if status, err := strconv.Atoi(words[2]); err != nil || status != 0 {
				how = "failed with status " + words[2]
			}
			v.say("%s: %s %s in %s s", k.Version, words[1], how, words[3])
		}
	}
}
