package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ttmem/aggregate/memory"
	"ttmem/tracer/recording"
)

// A Client sends requests to a service of this host. Several goroutines may use it.
type Client struct {
	path     string
	http     *http.Client
	ownersAt []string // when the service searches owners for a stream
}

// ErrNone is the error of Dial if no service runs.
var ErrNone = errors.New("no ttmem service")

// An untrusted error says that another user, who could answer anything, listens at the socket.
type untrusted uint32

func (u untrusted) Error() string { return fmt.Sprintf("user %d listens there", uint32(u)) }

// checkPeer returns an error unless root or this user listens at the other end.
func checkPeer(c net.Conn) error {
	cred, err := peer(c)
	if err != nil {
		return err
	}
	if cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()) && !(cred.Uid == overflowUID && !seesAllUsers()) {
		return untrusted(cred.Uid)
	}
	return nil
}

// overflowUID is the kernel's id for users that a user namespace does not have. In a container
// the host's root looks like this.
const overflowUID = 65534

// seesAllUsers reports whether this process's user namespace has all users of the host.
func seesAllUsers() bool {
	users, err := os.ReadFile("/proc/self/uid_map")
	return err != nil || slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}

// maxDocument is the maximum length of a document in an answer.
const maxDocument = 64 << 20

// answerTimeout is how long a service may take to begin an answer.
const answerTimeout = 30 * time.Second

// Dial connects to the service at a path; "" is DefaultSocket. It must have this version of
// the protocol.
func Dial(path string) (*Client, error) {
	path = cmp.Or(path, DefaultSocket)
	c := &Client{path: path, http: &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := connect(ctx, path)
			if err != nil {
				return nil, err
			}
			if err := checkPeer(conn); err != nil {
				conn.Close()
				return nil, err
			}
			return conn, nil
		},
		DisableCompression:    true,
		ResponseHeaderTimeout: answerTimeout,
	}}}
	health, err := c.Health(context.Background())
	if err != nil {
		c.Close()
		return nil, err
	}
	c.ownersAt = health.OwnersAt
	return c, nil
}

// connect connects to a socket. While others fill its queue, the kernel refuses at once, and it tries again.
func connect(ctx context.Context, path string) (conn net.Conn, err error) {
	var d net.Dialer
	for end := time.Now().Add(connectPatience); ; {
		conn, err = d.DialContext(ctx, "unix", path)
		if !errors.Is(err, unix.EAGAIN) || time.Now().After(end) {
			return conn, err
		}
		select {
		case <-time.After(connectInterval):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

const (
	connectPatience = 10 * time.Second
	connectInterval = 2 * time.Millisecond
)

// Path is the path of the service's socket.
func (c *Client) Path() string { return c.path }

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Health is the health of the service.
func (c *Client) Health(ctx context.Context) (*Health, error) {
	var h Health
	if err := c.document(ctx, "health", &h); err != nil {
		return nil, err
	}
	return &h, nil
}

// Snapshot returns the user's view of the present state.
func (c *Client) Snapshot(ctx context.Context) (*memory.Snapshot, error) {
	var s memory.Snapshot
	if err := c.document(ctx, "snapshot", &s); err != nil {
		return nil, err
	}
	return &s, nil
}

// State returns the present state as events, which bring a new aggregate.State to the user's
// view. Read the reader until io.EOF, or end the context.
func (c *Client) State(ctx context.Context) (*recording.Reader, error) {
	return c.recording(ctx, "state")
}

// Stream returns the present state and the later events, until the context is done.
func (c *Client) Stream(ctx context.Context) (*recording.Reader, error) {
	return c.recording(ctx, "stream")
}

// StreamWithOwners is Stream, and has the owners of the user's processes searched meanwhile: at "peaks", or also at "marks",
// if SearchesAt says that the service does that; "": not.
func (c *Client) StreamWithOwners(ctx context.Context, at string) (*recording.Reader, error) {
	return c.recording(ctx, "stream?owners="+at)
}

// SearchesAt reports whether the service searches owners at certain moments for a stream: older ones do not.
func (c *Client) SearchesAt(at string) bool { return slices.Contains(c.ownersAt, at) }

// Past returns the newest events of the user's view: a recording, as a file without a name.
func (c *Client) Past(ctx context.Context) (*os.File, error) {
	body, err := c.ask(ctx, http.MethodGet, "past")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	fd, err := unix.MemfdCreate("ttmem", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "the service's recording")
	if _, err := io.Copy(f, body); err != nil {
		f.Close()
		return nil, fmt.Errorf("reading from the ttmem service at %s: %w", c.path, err)
	}
	return f, nil
}

// Mark sets a mark, which is an event that only this user and root see. CheckMark checks
// names.
func (c *Client) Mark(ctx context.Context, name string) error {
	body, err := c.ask(ctx, http.MethodPost, "mark?name="+url.QueryEscape(name))
	if err != nil {
		return err
	}
	return body.Close()
}

// FindOwners searches the owners of the buffers of processes, or of all of the user's if there are none.
// It returns when they are in the service's state.
func (c *Client) FindOwners(ctx context.Context, pids []int) error {
	query := make(url.Values)
	for _, pid := range pids {
		query.Add("pid", strconv.Itoa(pid))
	}
	body, err := c.ask(ctx, http.MethodPost, "owners?"+query.Encode())
	if err != nil {
		return err
	}
	return body.Close()
}

func (c *Client) recording(ctx context.Context, name string) (*recording.Reader, error) {
	body, err := c.ask(ctx, http.MethodGet, name)
	if err != nil {
		return nil, err
	}
	r, err := recording.NewReader(body)
	if err != nil {
		body.Close()
		return nil, fmt.Errorf("reading from the ttmem service at %s: %w", c.path, err)
	}
	return r, nil
}

// document reads an answer that is JSON.
func (c *Client) document(ctx context.Context, name string, v any) error {
	body, err := c.ask(ctx, http.MethodGet, name)
	if err != nil {
		return err
	}
	defer body.Close()
	text, err := io.ReadAll(io.LimitReader(body, maxDocument+1))
	if len(text) > maxDocument {
		err = fmt.Errorf("it has more than %d MiB", maxDocument>>20)
	}
	if err == nil {
		var version struct{ V int }
		if err := json.Unmarshal(text, &version); err == nil && version.V != Protocol {
			return c.otherVersion(fmt.Sprintf("version %d", version.V))
		}
		err = json.Unmarshal(text, v)
	}
	if err != nil {
		return fmt.Errorf("reading the %s of the ttmem service at %s: %w", name, c.path, err)
	}
	return nil
}

// ask sends a request; the error says what to do.
func (c *Client) ask(ctx context.Context, method, name string) (io.ReadCloser, error) {
	request, err := http.NewRequestWithContext(ctx, method, fmt.Sprintf("http://ttmem/v%d/%s", Protocol, name), nil)
	if err != nil {
		return nil, err
	}
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	if answer.StatusCode/100 == 2 && answer.Header.Get(versionHeader) != "" {
		return answer.Body, nil
	}
	defer answer.Body.Close()
	line, _ := io.ReadAll(io.LimitReader(answer.Body, 500))
	text, isOurs := strings.CutPrefix(strings.TrimSpace(string(line)), "ttmem: ")
	switch {
	case !isOurs:
		return nil, fmt.Errorf("the server at %s is not a ttmem service: give the path of one", c.path)
	case answer.StatusCode == http.StatusNotFound:
		return nil, c.otherVersion(answer.Header.Get(versionHeader))
	}
	return nil, fmt.Errorf("the ttmem service at %s: %s", c.path, text)
}

func (c *Client) otherVersion(version string) error {
	return fmt.Errorf("the ttmem service at %s is of another version (%s): restart it with this ttmem", c.path, version)
}

// isSocket reports whether a file is a socket.
func isSocket(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().Type() == fs.ModeSocket
}

// explain says why there is no answer.
func (c *Client) explain(ctx context.Context, err error) error {
	var other untrusted
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &other):
		return fmt.Errorf("the service at %s is not trusted: %w, neither root nor you", c.path, other)
	case errors.Is(err, unix.ECONNREFUSED) && !isSocket(c.path), errors.Is(err, unix.EPROTOTYPE), errors.Is(err, unix.ENOTSOCK):
		return fmt.Errorf("%s is not the socket of a ttmem service: give the path of one", c.path)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		start := "sudo ttmem serve"
		if c.path != DefaultSocket {
			start += " --socket " + c.path
		}
		return fmt.Errorf("%w at %s: start one with `%s`", ErrNone, c.path, start)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("the ttmem service at %s: no permission to connect: its folder and the socket have to be open to this user", c.path)
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE),
		// net/http's message if the answer, a refusal, came before the request
		strings.Contains(err.Error(), "readLoopPeekFailLocked"):
		return fmt.Errorf("the ttmem service at %s closed the connection: it is ending, or too many are open", c.path)
	case strings.Contains(err.Error(), "malformed HTTP"):
		return fmt.Errorf("the server at %s is not a ttmem service: give the path of one", c.path)
	}
	return fmt.Errorf("querying the ttmem service at %s: %w", c.path, err)
}
