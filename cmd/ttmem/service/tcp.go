package service

import (
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// Nobody is a viewer who sees no process: a TCP client, whose user is not known. A TokenHolder
// is a TCP client that sent the token: it sees everything, but cannot set marks.
var (
	Nobody      = Viewer{UID: -1}
	TokenHolder = Viewer{UID: -2, All: true}
)

// A TCP answers clients whose user is not known. On loopback, which every user of the host can reach,
// they see totals; from other hosts they see nothing. With the token they see everything; it then
// speaks HTTPS only.
type TCP struct {
	secret *Secret // nil if there is none
	given  string  // the address of --http
	// host is the host in the given address, and remote is true if other hosts can reach it.
	host   string
	remote bool
	ports  []*port
}

// A port is one address of a TCP.
type port struct {
	at       *net.TCPAddr
	listener net.Listener // nil as long as the address cannot be had
}

// retryInterval is how often a TCP tries to get an address that another program has.
const retryInterval = 5 * time.Second

// ListenTCP listens at an address, and for localhost at both of its addresses. Other hosts must not
// reach it without allowRemote and a secret. An address that another program has is warned about, and
// ServeTCP tries to get it later.
func ListenTCP(addr string, allowRemote bool, secret *Secret, warn func(string)) (*TCP, error) {
	host, number, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, badAddress(addr, err)
	}
	l := &TCP{secret: secret, given: addr, host: host}
	hosts := []string{host}
	if strings.EqualFold(host, "localhost") {
		hosts = []string{"127.0.0.1", "::1"} // clients try one or the other first
	}
	for _, host := range hosts {
		at, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, number))
		if err != nil {
			return nil, badAddress(addr, err)
		}
		l.remote = l.remote || !at.IP.IsLoopback()
		l.ports = append(l.ports, &port{at: at})
	}
	if l.remote && (!allowRemote || secret == nil) {
		return nil, fmt.Errorf("--http %s: other hosts can reach this address: give --allow-remote and --token-file, or use 127.0.0.1", addr)
	}
	var errs []error
	for i, p := range l.ports {
		if i > 0 && p.at.Port == 0 && l.ports[0].listener != nil {
			p.at.Port = l.ports[0].at.Port
		}
		if err := p.listen(); err != nil {
			errs = append(errs, err)
		}
	}
	for i := range errs {
		if len(errs) == len(l.ports) && !errors.Is(errs[i], unix.EADDRINUSE) {
			l.Close()
			return nil, badAddress(addr, errs[i])
		}
	}
	for _, p := range l.ports {
		if p.listener == nil {
			warn(l.missing(p, holderOf(p.at)))
		}
	}
	return l, nil
}

func (p *port) listen() error {
	l, err := net.ListenTCP("tcp", p.at)
	if err == nil {
		p.listener, p.at = l, l.Addr().(*net.TCPAddr)
	}
	return err
}

// missing says that an address cannot be had, and who has it.
func (l *TCP) missing(p *port, h *holder) string {
	if h == nil {
		return fmt.Sprintf("--http %s: cannot listen at %s: the host does not have this address, or a program holds it; trying again every %v", l.given, p.at, retryInterval)
	}
	return fmt.Sprintf("--http %s: cannot listen at %s: %s holds it: end it, or give another port; trying again every %v", l.given, p.at, h, retryInterval)
}

// await returns the listener of an address as soon as it can be had; nil if the end comes first.
func (l *TCP) await(p *port, end <-chan struct{}, warn func(string)) net.Listener {
	if p.listener != nil {
		return p.listener
	}
	told, toldAt := holderOf(p.at), time.Now()
	for {
		select {
		case <-end:
			return nil
		case <-time.After(retryInterval):
		}
		if p.listen() == nil {
			warn("listening at " + l.url(p))
			return p.listener
		}
		if h := holderOf(p.at); !h.is(told) && time.Since(toldAt) > time.Minute {
			told, toldAt = h, time.Now()
			warn(l.missing(p, h))
		}
	}
}

// url is the address for a client.
func (l *TCP) url(p *port) string {
	scheme := "http"
	if l.secret != nil {
		scheme = "https"
	}
	return scheme + "://" + p.at.String()
}

// URLs are the addresses at which it listens. It must not be called after ServeTCP.
func (l *TCP) URLs() (list []string) {
	for _, p := range l.ports {
		if p.listener != nil {
			list = append(list, l.url(p))
		}
	}
	return list
}

// Close closes the listeners, if ServeTCP was not called.
func (l *TCP) Close() {
	for _, p := range l.ports {
		if p.listener != nil {
			p.listener.Close()
		}
	}
}

// ServeTCP answers on the addresses of a listener until Close. The users are not known.
func (s *Server) ServeTCP(l *TCP) error {
	errs := make([]error, len(l.ports))
	var serving sync.WaitGroup
	for i, p := range l.ports {
		serving.Go(func() {
			on := l.await(p, s.ending, s.o.Warn)
			if on == nil {
				return
			}
			on = &listener{Listener: on, limit: s.limit, tcp: l}
			if l.secret != nil {
				on = tls.NewListener(on, l.secret.config())
			}
			errs[i] = s.serve(on)
		})
	}
	serving.Wait()
	return errors.Join(errs...)
}

func badAddress(addr string, err error) error {
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		err = call.Err
	}
	return fmt.Errorf("--http %s: %w; give an address of this host and a port, such as 127.0.0.1:9464", addr, err)
}

// basicAuth makes a browser ask for the token, as a password.
const basicAuth = `Basic realm="ttmem", charset="UTF-8"`

// viewer returns the viewer who sent a request, or the status and text of a refusal.
func (l *TCP) viewer(r *http.Request) (v Viewer, status int, refusal string) {
	if given := r.Header.Get("Authorization"); given != "" {
		scheme, token, _ := strings.Cut(given, " ")
		if _, password, ok := r.BasicAuth(); ok { // of a browser
			scheme, token = "Bearer", password
		}
		if l.secret != nil && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(l.secret.token)) == 1 {
			return TokenHolder, 0, ""
		}
		return Nobody, http.StatusUnauthorized, "wrong token"
	}
	switch {
	case l.remote:
		return Nobody, http.StatusUnauthorized, "send the token of --token-file: Authorization: Bearer TOKEN"
	case !l.isLocal(r.Host):
		return Nobody, http.StatusForbidden, "unknown Host: use 127.0.0.1"
	}
	return Nobody, 0, ""
}

// isLocal reports whether a Host header names this listener. A web page whose name was made to
// resolve to loopback (DNS rebinding) has another one.
func (l *TCP) isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	ip := net.ParseIP(strings.Trim(host, "[]"))
	return host == "" || strings.EqualFold(host, "localhost") || host == certificateName || strings.EqualFold(host, l.host) || ip != nil && ip.IsLoopback()
}
