package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"ttmem/e2e/rig"
)

// starting measures the processor time of short commands, which is what a start costs on a busy host.
func (b *bench) starting() error {
	short := b.env.Command(context.Background(), rig.N150, filepath.Join(b.module, "e2e", "programs", "hold.py"), "1", "32")
	builds := []struct{ exe, name string }{{b.ttmem, ""}}
	if b.beside != "" {
		builds = append(builds, struct{ exe, name string }{b.beside, ", -beside"})
	}
	type start struct {
		name  string
		goal  float64
		args  []string
		spent []float64
	}
	list := []*start{{name: "the short program alone", args: short.Args}}
	list[0].args[0] = short.Path
	for _, build := range builds {
		for _, s := range []start{
			{name: "ttmem run -- true", goal: 0.3, args: []string{"run", "-o", filepath.Join(b.dir, "start.ttmem"), "--", "true"}},
			{name: "ttmem doctor", args: []string{"doctor"}},
			{name: "ttmem run, a short program included", args: slices.Concat([]string{"run", "-o", filepath.Join(b.dir, "start.ttmem"), "--"}, list[0].args)},
		} {
			s.name, s.args = s.name+build.name, append([]string{build.exe}, s.args...)
			if build.exe == b.beside {
				s.goal = 0
			}
			list = append(list, &s)
		}
	}
	for i := range b.attaches {
		for _, s := range list {
			progress("%s, %d of %d", s.name, i+1, b.attaches)
			cmd := exec.Command(s.args[0], s.args[1:]...)
			cmd.Env, cmd.Dir = short.Env, b.dir
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%s: %w: %s", s.name, err, out)
			}
			spent := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
			s.spent = append(s.spent, spent.Seconds())
			_ = os.Remove(filepath.Join(b.dir, "start.ttmem"))
		}
	}
	progress("")
	b.printf("Processor time; %d times, best and median\n", b.attaches)
	for _, s := range list {
		if s.goal > 0 {
			b.atMost(s.name+", best", slices.Min(s.spent), "s", s.goal)
		} else {
			b.figure(s.name+", best", slices.Min(s.spent), "s")
		}
		b.figure("  median", median(s.spent), "s")
	}
	return nil
}
