package service

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	processes "ttmem/tracer/host"
)

// The maximum number of connections at once: in total, for each user, and reserved for root, so
// that others cannot lock root out.
const (
	maxConnections        = 256
	maxConnectionsPerUser = 32
	connectionsForRoot    = 32
)

// listener accepts connections of users that do not have too many, and identifies the users.
type listener struct {
	net.Listener
	limit *limiter
	// tcp identifies the viewers of requests; nil for a unix socket, where the kernel identifies
	// the user of each connection.
	tcp *TCP
}

// peerViewer returns the user at the other end of a unix socket, and the one to whom the connection counts.
func peerViewer(c net.Conn) (v Viewer, of int, err error) {
	cred, err := peer(c)
	if err != nil {
		return Nobody, 0, err
	}
	if v = viewerOf(cred.Uid); v.All {
		return v, v.UID, nil
	}
	return v, processes.UserOfClient(int(cred.Pid), v.UID), nil
}

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v, of := Nobody, Nobody.UID
		if l.tcp == nil {
			if v, of, err = peerViewer(c); err != nil {
				c.Close() // the other end is closed already
				continue
			}
		}
		if !l.limit.acquire(of) {
			refuse(c)
			continue
		}
		return &conn{Conn: c, viewer: v, tcp: l.tcp, release: sync.OnceFunc(func() { l.limit.release(of) })}, nil
	}
}

// refuse answers that there are too many connections. A new connection has room for the answer,
// so this does not block.
func refuse(c net.Conn) {
	const why = "ttmem: too many connections: close some, or try again later\n"
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
	fmt.Fprintf(c, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n"+
		"Connection: close\r\n\r\n%s", len(why), why)
	c.Close()
}

// A conn is a connection of a viewer.
type conn struct {
	net.Conn
	viewer  Viewer
	tcp     *TCP // nil: a unix socket
	release func()
}

func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

type connKey struct{}

// withConn gives requests their connection.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// viewerOfRequest returns the viewer of a request, or the status and text of a refusal.
func viewerOfRequest(r *http.Request) (v Viewer, status int, refusal string) {
	c, ok := r.Context().Value(connKey{}).(*conn)
	switch {
	case !ok:
		return Nobody, 0, ""
	case c.tcp != nil:
		return c.tcp.viewer(r)
	}
	return c.viewer, 0, ""
}
