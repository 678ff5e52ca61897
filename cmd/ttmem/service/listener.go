package service

import (
	"context"
	"fmt"
	"net"
	"sync"
	"time"
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
	// viewer identifies the user of a connection.
	viewer func(net.Conn) (Viewer, error)
}

// peerViewer returns the user at the other end of a unix socket.
func peerViewer(c net.Conn) (Viewer, error) {
	cred, err := peer(c)
	if err != nil {
		return Nobody, err
	}
	return viewerOf(cred.Uid), nil
}

func nobody(net.Conn) (Viewer, error) { return Nobody, nil }

func (l *listener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		v, err := l.viewer(c)
		if err != nil {
			c.Close() // the other end is closed already
			continue
		}
		if !l.limit.acquire(v.UID) {
			refuse(c)
			continue
		}
		return &conn{Conn: c, viewer: v, release: sync.OnceFunc(func() { l.limit.release(v.UID) })}, nil
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
	release func()
}

func (c *conn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

type viewerKey struct{}

// withViewer gives requests the viewer of their connection.
func withViewer(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, viewerKey{}, c.viewer)
	}
	return ctx
}

// viewerIn is the viewer of a request; Nobody if that is not known.
func viewerIn(ctx context.Context) Viewer {
	if v, ok := ctx.Value(viewerKey{}).(Viewer); ok {
		return v
	}
	return Nobody
}
