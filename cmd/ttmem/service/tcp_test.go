package service

import (
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// get sends a request over TCP, with a Host unless that is "", and a token unless that is "".
func get(t testing.TB, addr, path, host, token string) (status int, text string) {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "http://"+addr+path, nil)
	qt.Assert(t, qt.IsNil(err))
	r.Host = host
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := http.DefaultClient.Do(r)
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
		{"/v1/snapshot", "[::1]:" + port, "", 200, `"allocated_bytes"`},
		{"/v1/snapshot", "evil.example:" + port, "", 403, "ttmem: unknown Host"},
		{"/v1/snapshot", "evil.example", testToken, 200, "secret-of-"},
	} {
		status, text := get(t, addr, c.path, c.host, c.token)
		qt.Check(t, qt.Equals(status, c.status), qt.Commentf("%+v", c))
		qt.Check(t, qt.StringContains(text, c.want), qt.Commentf("%+v", c))
	}
	answer, err := http.DefaultClient.Do(withToken(t, http.MethodPost, "http://"+addr+"/v1/mark?name=x"))
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
	l := &TCP{Token: testToken, remote: true}
	r, err := http.NewRequest(http.MethodGet, "http://localhost/v1/health", nil)
	qt.Assert(t, qt.IsNil(err))
	_, status, refusal := l.viewer(r)
	qt.Check(t, qt.Equals(status, 401))
	qt.Check(t, qt.StringContains(refusal, "send the token"))
	v, status, _ := l.viewer(withToken(t, http.MethodGet, "http://10.0.0.1/v1/health"))
	qt.Check(t, qt.Equals(status, 0))
	qt.Check(t, qt.Equals(v, TokenHolder))
}

func TestListenTCPRefusesWhatOthersCanReach(t *testing.T) {
	taken, err := ListenTCP("localhost:0", false, "")
	qt.Assert(t, qt.IsNil(err))
	defer taken.Close()
	for _, c := range []struct {
		addr, token string
		allow       bool
		want        string
	}{
		{"0.0.0.0:0", testToken, false, `--http 0.0.0.0:0: other hosts can reach this address: give --allow-remote and --token-file, or use localhost`},
		{":0", "", true, `--http :0: other hosts can reach this address: .*`},
		{taken.Addr().String(), "", false, `--http 127.*: address already in use; give an address of this host and a port that is free, such as localhost:9464`},
		{"nonsense", "", false, `--http nonsense: .*such as localhost:9464`},
		{":0", testToken, true, ""},
	} {
		l, err := ListenTCP(c.addr, c.allow, c.token)
		if c.want != "" {
			qt.Check(t, qt.ErrorMatches(err, c.want))
			continue
		}
		qt.Assert(t, qt.IsNil(err))
		l.Close()
	}
}

func TestATokenIsNotReadFromAFileForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	for _, c := range []struct {
		text string
		mode os.FileMode
		want string
	}{
		{testToken + "\n", 0o600, ""},
		{testToken, 0o644, ".*every user can read it: chmod 600 .*"},
		{"short\n", 0o600, ".*a token is one line of 16 to 1024 ASCII characters.*"},
		{testToken + "\n" + testToken, 0o600, ".*a token is one line.*"},
		{strings.Repeat("x", maxToken+1), 0o600, ".*a token is one line.*"},
	} {
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(c.text), 0o600)))
		qt.Assert(t, qt.IsNil(os.Chmod(path, c.mode)))
		token, err := ReadToken(path)
		if c.want != "" {
			qt.Check(t, qt.ErrorMatches(err, c.want))
			continue
		}
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(token, testToken))
	}
	_, err := ReadToken(t.TempDir())
	qt.Check(t, qt.ErrorMatches(err, ".*is not a regular file"))
	_, err = ReadToken("missing")
	qt.Check(t, qt.ErrorMatches(err, "--token-file missing: no such file or directory; `openssl rand -hex 32` makes a token"))
}
