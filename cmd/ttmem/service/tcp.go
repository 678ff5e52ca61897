package service

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	tracing "ttmem/tracer/host"
)

// Nobody is a viewer who sees no process: a TCP client, whose user is not known. A TokenHolder
// is a TCP client that sent the token: it sees everything, but cannot set marks.
var (
	Nobody      = Viewer{UID: -1}
	TokenHolder = Viewer{UID: -2, All: true}
)

// A TCP listener answers clients whose user is not known. On loopback, which every user of the
// host can reach, they see totals; from other hosts they see nothing. With the token they see
// everything.
type TCP struct {
	net.Listener
	// Token is the secret; "" if there is none.
	Token string
	// host is the host in the given address, and remote is true if other hosts can reach it.
	host   string
	remote bool
}

// ListenTCP listens at an address. Other hosts must not reach it without allowRemote and a token.
func ListenTCP(addr string, allowRemote bool, token string) (*TCP, error) {
	at, err := net.ResolveTCPAddr("tcp", addr)
	if err != nil {
		return nil, badAddress(addr, err)
	}
	l := &TCP{Token: token, remote: !at.IP.IsLoopback()}
	l.host, _, _ = net.SplitHostPort(addr)
	if l.remote && (!allowRemote || token == "") {
		return nil, fmt.Errorf("--http %s: other hosts can reach this address: give --allow-remote and --token-file, or use localhost", addr)
	}
	if l.Listener, err = net.ListenTCP("tcp", at); err != nil {
		return nil, badAddress(addr, err)
	}
	return l, nil
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
	return fmt.Errorf("--http %s: %w; give an address of this host and a port that is free, such as localhost:9464", addr, err)
}

// The length of a token, in characters: too long to be guessed, short enough for a header.
const minToken, maxToken = 16, 1024

// ReadToken reads the token in a file. Other users must not be able to read the file.
func ReadToken(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("--token-file %s: %w; `openssl rand -hex 32` makes a token", path, tracing.WithoutPath(err))
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return "", fmt.Errorf("--token-file: %w", err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("--token-file %s: is not a regular file", path)
	case info.Mode().Perm()&0o004 != 0:
		return "", fmt.Errorf("--token-file %s: every user can read it: chmod 600 %s", path, path)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxToken+2))
	if err != nil {
		return "", fmt.Errorf("--token-file: %w", err)
	}
	token := strings.TrimSpace(string(text))
	isOther := func(r rune) bool { return r <= ' ' || r > '~' }
	if len(token) < minToken || len(token) > maxToken || strings.ContainsFunc(token, isOther) {
		return "", fmt.Errorf("--token-file %s: a token is one line of %d to %d ASCII characters without spaces: `openssl rand -hex 32` makes one", path, minToken, maxToken)
	}
	return token, nil
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
		if l.Token != "" && strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(l.Token)) == 1 {
			return TokenHolder, 0, ""
		}
		return Nobody, http.StatusUnauthorized, "wrong token"
	}
	switch {
	case l.remote:
		return Nobody, http.StatusUnauthorized, "send the token of --token-file: Authorization: Bearer TOKEN"
	case !l.isLocal(r.Host):
		return Nobody, http.StatusForbidden, "unknown Host: use localhost"
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
	return host == "" || strings.EqualFold(host, "localhost") || strings.EqualFold(host, l.host) || ip != nil && ip.IsLoopback()
}
