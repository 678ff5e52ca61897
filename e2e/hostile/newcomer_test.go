package hostile

import (
	"bufio"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"ttmem/e2e/tracetest"
)

// heldByNewcomer is what the newcomer holds in DRAM: 3 tensors, in each of 12 banks.
const heldByNewcomer = 3 * 45056 * 12

// discoverLimit is how long it may take until a process that starts during an attack is traced,
// and what it holds known.
const discoverLimit = 2 * time.Second

// newcomer starts a program of the victim's user during an attack, and checks that it is traced.
func (r *hostileRig) newcomer() (failures []string) {
	program, err := filepath.Abs("../programs/hold.py")
	if err != nil {
		return []string{err.Error()}
	}
	cmd := r.ordinary.ttnn(r.env, program, "3", "512")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return []string{err.Error()}
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return []string{err.Error()}
	}
	if err := start(cmd); err != nil {
		return []string{err.Error()}
	}
	limit := time.AfterFunc(2*time.Minute*patience, func() { cmd.Process.Kill() })
	defer func() {
		limit.Stop()
		stdin.Close()
		cmd.Process.Kill()
		cmd.Wait()
	}()
	for s := bufio.NewScanner(out); s.Scan() && !strings.HasPrefix(s.Text(), "holding"); {
	}
	got := uint64(0)
	for began := time.Now(); !tracetest.IsLate(time.Since(began), discoverLimit); time.Sleep(20 * time.Millisecond) {
		snapshot, err := r.pair.snapshot()
		if err != nil {
			continue
		}
		for _, p := range snapshot.Processes {
			for _, held := range p.Live {
				if p.PID == cmd.Process.Pid && held.Region == "DRAM" {
					got = held.AllocatedBytes
				}
			}
		}
		if got == heldByNewcomer {
			return nil
		}
	}
	return []string{fmt.Sprintf("during the attack: serve: a program that started meanwhile holds %d B of DRAM, not %d", got, heldByNewcomer)}
}
