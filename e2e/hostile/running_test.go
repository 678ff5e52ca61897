package hostile

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// running is an attack that goes on.
type running struct {
	*exec.Cmd
	stdin io.WriteCloser
	lines chan string
	log   *os.File
}

// start starts the program of an attack, and waits until it says that it attacks.
func (r *hostileRig) start(a attack) (*running, error) {
	u := r.users[a.user]
	words := strings.Fields(a.program)
	name, args := filepath.Join(r.bin, words[0]), words[1:]
	if strings.HasSuffix(name, ".py") {
		name, args = "/usr/bin/python3", append([]string{"-B", name}, args...)
	}
	cmd := u.command("nice", append([]string{"-n", "5", name}, args...)...) // it is not the scheduler that is tested
	about := map[string]any{"dir": u.home, "socket": r.pair.socket, "http": r.pair.http, "victim": r.victim.Process.Pid, "serve": r.pair.serve.Process.Pid}
	for key, value := range r.context {
		about[key] = value
	}
	text, err := json.Marshal(about)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(u.home, "context.json")
	_ = os.Remove(file)
	if err := os.WriteFile(file, text, 0o644); err != nil {
		return nil, err
	}
	if err := os.Chown(file, u.uid, u.uid); err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, "HOSTILE="+file, "PYTHONPATH="+r.bin)
	log, err := os.CreateTemp("", "ttmem-attack-")
	if err != nil {
		return nil, err
	}
	os.Remove(log.Name())
	cmd.Stderr = log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := start(cmd); err != nil {
		return nil, err
	}
	p := &running{Cmd: cmd, stdin: stdin, lines: make(chan string, 100), log: log}
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			select {
			case p.lines <- s.Text():
			default:
			}
		}
		close(p.lines)
	}()
	for limit := time.After(2 * time.Minute * patience); ; {
		select {
		case line, ok := <-p.lines:
			if !ok {
				return p, fmt.Errorf("the attack has ended before it began: %s", p.said())
			}
			if line == "attacking" {
				return p, nil
			}
			if strings.HasPrefix(line, "mount ") {
				if err := p.mount(u, line); err != nil {
					return p, err
				}
			}
			if pid, ok := strings.CutPrefix(line, "ids "); ok {
				if err := p.mapIDs(pid); err != nil {
					return p, err
				}
			}
		case <-limit:
			return p, fmt.Errorf("the attack does not begin: %s", p.said())
		}
	}
}

// mount does what the setuid program fusermount does for every user, if user_allow_other is set: it
// mounts the file system that the user serves.
func (p *running) mount(u *user, line string) error {
	var number int
	var point string
	if _, err := fmt.Sscanf(line, "mount %d %s", &number, &point); err != nil {
		return err
	}
	process, err := unix.PidfdOpen(p.Process.Pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(process)
	fd, err := unix.PidfdGetfd(process, number, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=%d,group_id=%d,allow_other", fd, u.uid, u.uid)
	if err := unix.Mount("hostile", point, "fuse", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mounting FUSE: %w", err)
	}
	_, err = io.WriteString(p.stdin, "\n")
	return err
}

// mapIDs does what the setuid program newuidmap does for a user with a range of ids in /etc/subuid.
func (p *running) mapIDs(pid string) error {
	for _, ids := range []string{"uid_map", "gid_map"} {
		if err := os.WriteFile(filepath.Join("/proc", pid, ids), fmt.Appendf(nil, "0 %d %d", subordinate, subordinates), 0); err != nil {
			return err
		}
	}
	_, err := io.WriteString(p.stdin, "\n")
	return err
}

func (p *running) said() string {
	text := make([]byte, 2000)
	n, _ := p.log.ReadAt(text, 0)
	return string(text[:n])
}
