package source

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"ttmem/cmd/ttmem/service"
	"ttmem/tracer/kernel"
)

// inPlaceOfRoot returns the service that traces for a user who may not: the host's or, if none runs, one of this
// process that sudo starts. It is nil for a user who may trace.
func (o *Options) inPlaceOfRoot() (*service.Client, error) {
	if kernel.MayTrace() {
		return nil, nil
	}
	client, err := o.connect(true)
	if err == nil && !isOwnService(client) {
		if err := o.Stacks.checkService(); err != nil {
			client.Close()
			return nil, err
		}
	}
	return client, err
}

// connect connects to the host's service or, with bySudo, to one that sudo starts if none runs. It returns nil if none runs
// and this process may trace itself.
func (o *Options) connect(bySudo bool) (*service.Client, error) {
	client, err := service.Dial(o.Socket)
	switch {
	case !errors.Is(err, service.ErrNone) || o.SocketNamed:
		return client, err
	case kernel.MayTrace():
		return nil, nil
	case bySudo && kernel.MaySudo():
		return o.sudo()
	}
	return nil, fmt.Errorf("%w; without one, %w", err, kernel.Check())
}

// ownService is the service that sudo has started for this process.
var ownService struct {
	sync.Mutex
	socket string
}

// isOwnService reports whether sudo has started a service for this process.
func isOwnService(client *service.Client) bool {
	ownService.Lock()
	defer ownService.Unlock()
	return client.Path() == ownService.socket
}

// sudo starts a service with sudo, once for this process, whose end it notices.
func (o *Options) sudo() (*service.Client, error) {
	ownService.Lock()
	defer ownService.Unlock()
	if ownService.socket != "" {
		return service.Dial(ownService.socket)
	}
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	sudo, err := exec.LookPath("sudo")
	if err != nil {
		return nil, errors.New("tracing needs root: no ttmem service runs on this host, and there is no sudo; an administrator starts one with `ttmem serve`")
	}
	// in a folder of the user's own, in which a stranger who reads the command line cannot make it first
	dir, err := os.MkdirTemp(os.Getenv("XDG_RUNTIME_DIR"), "ttmem-")
	if err != nil { // su leaves the variable of another user
		dir, err = os.MkdirTemp("", "ttmem-")
	}
	if err != nil {
		return nil, fmt.Errorf("making a folder for a socket: %w", err)
	}
	socket := filepath.Join(dir, "serve.sock")
	args := append([]string{"--", program, "serve", "--socket", socket, "--for", strconv.Itoa(os.Getpid())}, o.Stacks.flags()...)
	tty, err := os.Open("/dev/tty")
	if err == nil {
		tty.Close()
	} else {
		args = append([]string{"-n"}, args...) // nobody can type a password
	}
	var says bytes.Buffer
	cmd := exec.Command(sudo, args...)
	cmd.Stderr = &says
	if err := cmd.Start(); err != nil {
		os.Remove(dir)
		return nil, fmt.Errorf("starting sudo: %w", err)
	}
	ended, signals := make(chan struct{}), make(chan os.Signal, 1)
	go func() {
		_ = cmd.Wait() // says has why
		close(ended)
	}()
	notify(signals)
	defer signal.Stop(signals)
	answers := dialBegun(socket, ended)
	select {
	case a := <-answers:
		if a.err == nil {
			ownService.socket = socket
		}
		return a.client, a.err
	case by := <-signals:
		select {
		case <-ended: // it has restored the terminal
		case <-time.After(sudoPatience):
		}
		os.Remove(dir)
		o.notBegun(by)
	case <-ended:
		os.Remove(dir)
		select {
		case by := <-signals: // Ctrl-C ended sudo, too
			o.notBegun(by)
		case <-time.After(signalPatience):
		}
	}
	lines := strings.Split(strings.TrimSpace(says.String()), "\n")
	return nil, fmt.Errorf("tracing needs root, no ttmem service runs on this host, and with sudo none began: %s", strings.TrimPrefix(lines[len(lines)-1], "ttmem: "))
}

const (
	// dialInterval is how often to try whether the service has begun.
	dialInterval = 20 * time.Millisecond
	// sudoPatience is how long sudo may take to end at a signal. It does not end if another signal than Ctrl-C came, which
	// only this process got.
	sudoPatience = time.Second
	// signalPatience is how long after sudo's end a signal that ended it may come.
	signalPatience = 100 * time.Millisecond
)

// dialed is the answer of a service that has begun.
type dialed struct {
	client *service.Client
	err    error
}

// dialBegun connects to a service that is about to begin, until sudo has ended.
func dialBegun(socket string, ended <-chan struct{}) <-chan dialed {
	answers := make(chan dialed, 1)
	go func() {
		for {
			client, err := service.Dial(socket)
			slow := net.Error(nil) // on a busy host it takes long to begin
			if !errors.Is(err, service.ErrNone) && !(errors.As(err, &slow) && slow.Timeout()) {
				answers <- dialed{client, err}
				return
			}
			select {
			case <-ended:
				return
			case <-time.After(dialInterval):
			}
		}
	}()
	return answers
}
