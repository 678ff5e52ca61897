package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// stackCount matches the count of a stack in bpftrace's output: "]: 3000".
var stackCount = regexp.MustCompile(`(?m)^\]: (\d+)$`)

// bpftrace counts the allocations of a program by stack, as a user would by hand. It gets
// two frames a stack, because the library has no frame pointers.
func (b *bench) bpftrace(p *program, pairs int) (ended, error) {
	script := fmt.Sprintf(`uprobe:%[1]s:%#[2]x { @[ustack] = count(); } uprobe:%[1]s:%#[3]x { } interval:ms:100 { printf("up\n"); }`,
		b.env.Library, b.alloc.ProbeAddr, b.free.ProbeAddr)
	path, err := exec.LookPath("bpftrace")
	if err != nil {
		return nil, errors.New("bpftrace is not installed: `make bench` installs it on Debian and Ubuntu")
	}
	cmd := exec.Command(path, "--unsafe", "-p", strconv.Itoa(p.pid()), "-e", script)
	cmd.Env = append(os.Environ(), "BPFTRACE_MAP_KEYS_MAX=65536")
	var problems bytes.Buffer
	cmd.Stderr = &problems
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	out := bufio.NewReader(stdout)
	for line := ""; strings.TrimSpace(line) != "up"; {
		if line, err = out.ReadString('\n'); err != nil {
			_ = cmd.Wait()
			return nil, fmt.Errorf("bpftrace: %s", strings.TrimSpace(problems.String()))
		}
	}
	// the interval may begin before the probes are placed; the count shows that at the end
	time.Sleep(300 * time.Millisecond)
	return func() (uint64, error) {
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			return 0, err
		}
		text, err := io.ReadAll(out)
		if err := errors.Join(err, cmd.Wait()); err != nil {
			return 0, fmt.Errorf("bpftrace: %w: %s", err, strings.TrimSpace(problems.String()))
		}
		seen := 0
		for _, m := range stackCount.FindAllSubmatch(text, -1) {
			n, err := strconv.Atoi(string(m[1]))
			if err != nil {
				return 0, err
			}
			seen += n
		}
		return uint64(max(0, pairs-seen)), nil
	}, nil
}
