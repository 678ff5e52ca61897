package service

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// get sends a request over TCP, with a Host unless that is "", and a token unless that is "".
func get(t testing.TB, addr, path, host, token string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://"+addr+path, nil)
	qt.Assert(t, qt.IsNil(err))
	r.Host = host
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := testClient.Do(r)
	qt.Assert(t, qt.IsNil(err))
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	qt.Assert(t, qt.IsNil(err))
	return answer.StatusCode, string(body)
}

// The token shows what root sees. A web page that made its name resolve to loopback gets nothing.
func TestTCPNeedsTheTokenForProcesses(t *testing.T) {
	_, addr := serve(t, testHub().hub)
	_, port, _ := net.SplitHostPort(addr)
	for _, c := range []struct {
		path, host, token string
		status            int
		want              string
	}{
		{"/v1/snapshot", "", testToken, 200, "secret-of-"},
		{"/v1/state", "", testToken, 200, "TTMEM"},
		{"/v1/snapshot", "", testToken + "x", 401, "ttmem: wrong token"},
		{"/v1/snapshot", "localhost:" + port, "", 200, `"allocated_bytes"`},
		{"/v1/snapshot", "ttmem:" + port, "", 200, `"allocated_bytes"`},
		{"/v1/snapshot", "[::1]:" + port, "", 200, `"allocated_bytes"`},
		{"/v1/snapshot", "evil.example:" + port, "", 403, "ttmem: unknown Host"},
		{"/v1/snapshot", "evil.example", testToken, 200, "secret-of-"},
	} {
		status, text := get(t, addr, c.path, c.host, c.token)
		qt.Check(t, qt.Equals(status, c.status), qt.Commentf("%+v", c))
		qt.Check(t, qt.StringContains(text, c.want), qt.Commentf("%+v", c))
	}
	answer, err := testClient.Do(withToken(t, http.MethodPost, "https://"+addr+"/v1/mark?name=x"))
	qt.Assert(t, qt.IsNil(err))
	answer.Body.Close()
	qt.Check(t, qt.Equals(answer.StatusCode, http.StatusNotFound)) // nothing to set marks with
}

func withToken(t testing.TB, method, url string) *http.Request {
	r, err := http.NewRequest(method, url, nil)
	qt.Assert(t, qt.IsNil(err))
	r.Header.Set("Authorization", "Bearer "+testToken)
	return r
}

// Clients of other hosts see nothing without the token.
func TestRemoteClientsNeedTheToken(t *testing.T) {
	l := &TCP{secret: testSecret, remote: true}
	r, err := http.NewRequest(http.MethodGet, "http://localhost/v1/health", nil)
	qt.Assert(t, qt.IsNil(err))
	_, status, refusal := l.viewer(r)
	qt.Check(t, qt.Equals(status, 401))
	qt.Check(t, qt.StringContains(refusal, "send the token"))
	v, status, _ := l.viewer(withToken(t, http.MethodGet, "http://10.0.0.1/v1/health"))
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.Equals(v, TokenHolder))
}

// listen listens at an address, and returns what was warned about.
func listen(t *testing.T, addr string, secret *Secret) (l *TCP, warnings []string) {
	t.Helper()
	l, err := ListenTCP(addr, false, secret, func(text string) { warnings = append(warnings, text) })
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(l.Close)
	return l, warnings
}

func TestListenTCPRefusesWhatOthersCanReach(t *testing.T) {
	for _, c := range []struct {
		addr   string
		secret *Secret
		allow  bool
		want   string
	}{
		{"0.0.0.0:0", testSecret, false, `--http 0.0.0.0:0: other hosts can reach this address: give --allow-remote and --token-file, or use 127.0.0.1`},
		{":0", nil, true, `--http :0: other hosts can reach this address: .*`},
		{"192.0.2.1:9464", testSecret, true, `--http 192.0.2.1:9464: cannot assign requested address; give an address of this host and a port, such as 127.0.0.1:9464`},
		{"nonsense", nil, false, `--http nonsense: .*such as 127.0.0.1:9464`},
		{":0", testSecret, true, ""},
	} {
		l, err := ListenTCP(c.addr, c.allow, c.secret, ignore)
		if c.want != "" {
			qt.Check(t, qt.ErrorMatches(err, c.want))
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		l.Close()
	}
}

// A client tries one or the other address of localhost first: both are the service's.
func TestLocalhostIsBothAddresses(t *testing.T) {
	l, warnings := listen(t, "localhost:0", testSecret)
	qt.Assert(t, qt.HasLen(warnings, 0))
	_, number, _ := net.SplitHostPort(l.ports[0].at.String())
	qt.Check(t, qt.DeepEquals(l.URLs(), []string{"https://127.0.0.1:" + number, "https://[::1]:" + number}))
}

// A port that another program holds is named with its holder, and had as soon as that ends. Meanwhile
// the other address, and the unix socket, answer.
func TestATakenPortIsTriedAgain(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "[::1]:0")
	qt.Assert(t, qt.IsNil(err))
	_, number, _ := net.SplitHostPort(taken.Addr().String())
	l, warnings := listen(t, "localhost:"+number, testSecret)
	qt.Assert(t, qt.HasLen(warnings, 1))
	qt.Check(t, qt.Equals(warnings[0], fmt.Sprintf("--http localhost:%s: cannot listen at [::1]:%s: PID %d of user %d holds it: "+
		"end it, or give another port; trying again every 5s", number, number, os.Getpid(), os.Getuid())))
	qt.Check(t, qt.HasLen(l.URLs(), 1))
	said := make(chan string, 10)
	s := NewServer(testHub().hub, Options{Version: "1.2.3", Warn: func(text string) { said <- text }})
	done := make(chan error)
	go func() { done <- s.ServeTCP(l) }()
	status, _ := get(t, "127.0.0.1:"+number, "/v1/health", "", testToken)
	qt.Check(t, qt.Equals(status, 200))
	taken.Close()
	qt.Check(t, qt.Equals(<-said, "listening at https://[::1]:"+number))
	status, _ = get(t, "[::1]:"+number, "/v1/health", "", testToken)
	qt.Check(t, qt.Equals(status, 200))
	s.Close()
	qt.Check(t, qt.IsNil(<-done))
}

// A service ends also while it waits for a port.
func TestAServiceEndsWithoutItsPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	defer taken.Close()
	l, warnings := listen(t, taken.Addr().String(), nil)
	qt.Check(t, qt.HasLen(warnings, 1))
	s := NewServer(testHub().hub, Options{Version: "1.2.3"})
	done := make(chan error)
	go func() { done <- s.ServeTCP(l) }()
	s.Close()
	qt.Check(t, qt.IsNil(<-done))
}

// A stranger who has the port gets no token from a client that was given the certificate, and one who
// listens in plain HTTP, as this service would without a token, gets none either.
func TestAStrangerGetsNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("another-token-of-theirs"), 0o600)))
	theirs, err := ReadSecret(path)
	qt.Assert(t, qt.IsNil(err))
	for _, config := range []*tls.Config{theirs.config(), nil} {
		var got strings.Builder
		l, err := net.Listen("tcp", "127.0.0.1:0")
		qt.Assert(t, qt.IsNil(err))
		ended := make(chan bool)
		go func() {
			defer close(ended)
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			if config != nil {
				c = tls.Server(c, config)
			}
			b := make([]byte, 1<<16)
			n, _ := c.Read(b)
			got.Write(b[:n])
		}()
		_, err = testClient.Do(withToken(t, http.MethodGet, "https://"+l.Addr().String()+"/metrics"))
		qt.Check(t, qt.IsNotNil(err))
		l.Close()
		<-ended
		qt.Check(t, qt.IsFalse(strings.Contains(got.String(), testToken)))
	}
}

// A service with a token tells a client that speaks plain HTTP what is wrong, and shows it nothing.
func TestATokenIsForHTTPSOnly(t *testing.T) {
	_, addr := serve(t, testHub().hub)
	answer, err := http.DefaultClient.Do(withToken(t, http.MethodGet, "http://"+addr+"/v1/snapshot"))
	qt.Assert(t, qt.IsNil(err))
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	qt.Check(t, qt.Equals(answer.StatusCode, http.StatusBadRequest))
	qt.Check(t, qt.StringContains(string(text), "HTTPS"))
}

func TestATokenIsNotReadFromAFileOfOthers(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "token")
	stranger := "it belongs to user 4321, who can read and change it: chown 0 .*"
	for _, c := range []struct {
		text string
		mode os.FileMode
		uid  int
		want string
	}{
		{testToken + "\n", 0o600, 0, ""},
		{testToken + "\n", 0o400, 0, ""},
		{testToken, 0o644, 0, ".*other users may read or change it: chmod 600 .*"},
		{testToken, 0o640, 0, ".*other users may read or change it: chmod 600 .*"},
		{testToken, 0o602, 0, ".*other users may read or change it: chmod 600 .*"},
		{testToken, 0o600, 4321, ".*" + stranger},
		{"short\n", 0o600, 0, ".*a token is one line of 16 to 1024 ASCII characters.*"},
		{testToken + "\n" + testToken, 0o600, 0, ".*a token is one line.*"},
		{strings.Repeat("x", maxToken+1), 0o600, 0, ".*a token is one line.*"},
	} {
		_ = os.Remove(path)
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(c.text), 0o600)))
		qt.Assert(t, qt.IsNil(os.Chmod(path, c.mode)))
		if c.uid != 0 && os.Getuid() == 0 {
			qt.Assert(t, qt.IsNil(os.Chown(path, c.uid, c.uid)))
		} else if c.uid != 0 {
			continue // only root can give files to others
		}
		secret, err := ReadSecret(path)
		if c.want != "" {
			qt.Check(t, qt.ErrorMatches(err, c.want))
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(secret.token, testToken))
	}
	// the key and the certificate were made by then
	again, err := ReadSecret(writeToken(t, path))
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(strings.Join(again.certificate.Leaf.DNSNames, " "), "ttmem"))
	qt.Check(t, qt.IsFalse(again.certificate.Leaf.IsCA))
	info, err := os.Stat(path + ".key")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(info.Mode().Perm(), 0o600))
	qt.Assert(t, qt.IsNil(os.Chmod(path+".key", 0o640)))
	_, err = ReadSecret(path)
	qt.Check(t, qt.ErrorMatches(err, ".*the key and the certificate for HTTPS: .*chmod 600 .*"))
	qt.Assert(t, qt.IsNil(os.Remove(path+".key")))
	_, err = ReadSecret(path)
	qt.Check(t, qt.ErrorMatches(err, ".*token.key: no such file or directory; without .*, ttmem makes both"))

	_, err = ReadSecret(dir)
	qt.Check(t, qt.ErrorMatches(err, ".*is not a regular file"))
	_, err = ReadSecret("missing")
	qt.Check(t, qt.ErrorMatches(err, "--token-file missing: no such file or directory; `openssl rand -hex 32` makes a token"))
}

// writeToken writes the token, and returns the path.
func writeToken(t *testing.T, path string) string {
	t.Helper()
	_ = os.Remove(path)
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(testToken), 0o600)))
	return path
}
