package faults

import (
	"bufio"
	"context"
	"path/filepath"
	"time"

	"ttmem/cmd/ttmem/service"
	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
	"ttmem/tracer/event"
	"ttmem/tracer/host"
)

// millionEnd kills a program with a million buffers beside another one, whose events are not to be
// late because of it.
func millionEnd(s *scene) {
	many, err := filepath.Abs("programs/many.py")
	s.must(err)
	p := s.attached()
	events, socket := s.file("events.ttmem"), filepath.Join(s.dir, "ttmem.sock")
	serve := s.trace(nil, "serve", "--socket", socket)
	tr := s.trace(nil, "attach", "--json", "--no-stacks", "-o", events)
	serve.ready()
	tr.ready()
	cmd := s.env.Command(context.Background(), rig.N150, many, "1000000")
	cmd.Env, cmd.Dir = append(cmd.Env, "TTMEM_MESH=1x1"), s.t.TempDir()
	in, err := cmd.StdinPipe()
	s.must(err)
	defer in.Close()
	out, err := cmd.StdoutPipe()
	s.must(err)
	s.must(cmd.Start())
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "holding\n" {
		s.stop("a program with a million buffers says %q: %v", line, err)
	}
	arrivals := s.follow(p, socket)
	p.play(1)
	<-arrivals // it follows
	_ = cmd.Process.Kill()
	began := time.Now()
	p.play(20)
	cmd.Wait()
	ended, most := host.Now(), time.Duration(0)
	p.play(1)
	for a := range arrivals {
		most = max(most, a.late)
		if a.timeNs > ended {
			break
		}
	}
	s.t.Logf("the other program's events were %v late", most.Round(time.Millisecond))
	if tracetest.IsLate(most, time.Second) {
		s.fail("the other program's events came %v late", most)
	}
	tr.ends()
	s.t.Logf("ended %.1f s after the program", time.Since(began).Seconds())
	serve.ends()
	frees := 0
	s.must(tracetest.EachEvent(events, func(e *event.Event) {
		if e.PID == cmd.Process.Pid && e.Kind == event.Free {
			frees++
		}
	}))
	if frees != 1000000 {
		s.fail("%d buffers were freed, not a million", frees)
	}
	s.complete(p, events)
}

// An arrival is when an event happened, and how much later the service sent it.
type arrival struct {
	timeNs uint64
	late   time.Duration
}

// follow follows the allocations and frees of a program until the service ends.
func (s *scene) follow(p *program, socket string) <-chan arrival {
	client, err := service.Dial(socket)
	s.must(err)
	stream, err := client.Stream(context.Background())
	s.must(err)
	arrivals := make(chan arrival, 10000)
	go func() {
		defer client.Close()
		defer close(arrivals)
		for e := (event.Event{}); stream.Next(&e) == nil; {
			if e.PID == p.pid && (e.Kind == event.Alloc || e.Kind == event.Free) && !e.BeforeAttach {
				arrivals <- arrival{e.TimeNs, time.Duration(host.Now() - e.TimeNs)}
			}
		}
	}()
	return arrivals
}
