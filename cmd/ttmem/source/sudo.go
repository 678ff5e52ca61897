package source

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
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
	client, err := service.Dial(o.Socket)
	switch {
	case err == nil:
		if err := o.Stacks.checkService(); err != nil {
			client.Close()
			return nil, err
		}
		return client, nil
	case !errors.Is(err, service.ErrNone) || o.SocketNamed:
		return nil, err
	case !kernel.MaySudo():
		return nil, nil // and the tracer says what is missing
	}
	return o.sudo()
}

// ownService is the service that sudo has started for this process.
var ownService struct {
	sync.Mutex
	socket string
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
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		client, err := service.Dial(socket)
		switch {
		case err == nil:
			ownService.socket = socket
			return client, nil
		case !errors.Is(err, service.ErrNone):
			return nil, err
		}
		select {
		case <-ended:
			os.Remove(dir)
			why, _, _ := strings.Cut(says.String(), "\n")
			return nil, fmt.Errorf("tracing needs root, no ttmem service runs on this host, and with sudo none began: %s", strings.TrimPrefix(why, "ttmem: "))
		case <-time.After(dialInterval):
		}
	}
}

// dialInterval is how often to try whether the service has begun.
const dialInterval = 20 * time.Millisecond
