package hostile

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/service"
	"ttmem/e2e/tracetest"
)

// holdPort holds a port at addresses as a user, and returns the PID and what came to the port.
func holdPort(t *testing.T, u *user, port string, addresses ...string) (pid int, came func() string) {
	t.Helper()
	program := filepath.Join(u.home, "port.py")
	out, err := exec.Command("install", "-m", "755", "programs/port.py", program).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	log, err := os.Create(filepath.Join(u.home, "came"))
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { log.Close() })
	cmd := u.command("/usr/bin/python3", append([]string{"-B", program, port}, addresses...)...)
	cmd.Stdout, cmd.Stderr = log, log
	qt.Assert(t, qt.IsNil(start(cmd)))
	go cmd.Wait()
	came = func() string {
		text, _ := os.ReadFile(log.Name())
		return string(text)
	}
	if !tracetest.Eventually(time.Minute*patience, func() bool { return strings.Contains(came(), "attacking") }) {
		t.Fatalf("the attack does not begin: %s", came())
	}
	return cmd.Process.Pid, came
}

// TestTakenPort: a user who holds the port of a service, before it starts, after it ends, or at the other
// address of localhost while it runs, keeps it from nothing else, is named, and gets no token from clients
// that have the certificate.
func TestTakenPort(t *testing.T) {
	u := newUser(t, 8)
	free, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	_, port, _ := net.SplitHostPort(free.Addr().String())
	free.Close()
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	const secretToken = "a-token-of-root-0123456789"
	qt.Assert(t, qt.IsNil(os.WriteFile(token, []byte(secretToken), 0o600)))

	pid, came := holdPort(t, u, port, "127.0.0.1", "::1")
	socket := filepath.Join(dir, "ttmem.sock")
	serve, err := startTracer(dir, "every process", "serve", "--socket", socket, "--http", "localhost:"+port, "--token-file", token)
	qt.Assert(t, qt.IsNil(err))
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		qt.Check(t, qt.StringContains(serve.said(), fmt.Sprintf("cannot listen at %s:%s: PID %d of user %d holds it", address, port, pid, u.uid)))
	}
	c, err := service.Dial(socket)
	qt.Assert(t, qt.IsNil(err))
	_, err = c.Snapshot(t.Context())
	qt.Check(t, qt.IsNil(err))
	c.Close()

	certificate, err := os.ReadFile(token + ".crt")
	qt.Assert(t, qt.IsNil(err))
	trusted := x509.NewCertPool()
	qt.Assert(t, qt.IsTrue(trusted.AppendCertsFromPEM(certificate)))
	// scrape is what Prometheus does.
	scrape := func(host string) (string, error) {
		client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}, DisableKeepAlives: true}}
		r, err := http.NewRequest(http.MethodGet, "https://"+host+":"+port+"/metrics?processes=5", nil)
		qt.Assert(t, qt.IsNil(err))
		r.Header.Set("Authorization", "Bearer "+secretToken)
		answer, err := client.Do(r)
		if err != nil {
			return "", err
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		return string(text), err
	}
	hosts := []string{"127.0.0.1", "[::1]", "localhost"}
	attacked := func(came func() string) {
		t.Helper()
		for _, host := range hosts {
			_, err := scrape(host)
			qt.Check(t, qt.IsNotNil(err))
		}
		qt.Check(t, qt.IsFalse(strings.Contains(came(), secretToken)), qt.Commentf("%s", came()))
	}
	attacked(came)
	u.killAll()
	for _, host := range hosts {
		text, err := "", error(nil)
		tracetest.Eventually(time.Minute*patience, func() bool { text, err = scrape(host); return err == nil })
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(text, "\nttmem_processes "))
	}
	qt.Check(t, qt.Equals(serve.stop(), ""))
	_, came = holdPort(t, u, port, "127.0.0.1", "::1")
	attacked(came)
	u.killAll()

	// a service that has only one of the addresses that clients try
	for _, at := range []struct{ service, other, url string }{{"127.0.0.1", "::1", "[::1]"}, {"::1", "127.0.0.1", "127.0.0.1"}} {
		_, came = holdPort(t, u, port, at.other)
		serve, err = startTracer(dir, "every process", "serve", "--socket", socket, "--http", net.JoinHostPort(at.service, port), "--token-file", token)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.StringContains(serve.said(), "listening at "+socket+" and https://"))
		for _, host := range []string{at.url, "localhost"} {
			_, _ = scrape(host) // the latter may reach the service
		}
		_, err = scrape(at.url)
		qt.Check(t, qt.IsNotNil(err))
		qt.Check(t, qt.IsFalse(strings.Contains(came(), secretToken)), qt.Commentf("%s", came()))
		qt.Check(t, qt.Equals(serve.stop(), ""))
		u.killAll()
	}
}
