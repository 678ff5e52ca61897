// Package fleet tests that the programs of a fleet read what ttmem serves: the files of
// docs/fleet with Debian's Prometheus, and profiles with Go's pprof. Nothing is traced here: the
// events are made up.
package fleet

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"ttmem/aggregate"
	"ttmem/cmd/ttmem/service"
	"ttmem/e2e/pagetest"
	"ttmem/e2e/rig"
	"ttmem/tracer/event"
)

// docs is the folder of the files for a fleet.
const docs = "../../docs/fleet"

const token = "0123456789abcdef"

// prometheusVersion is the release of Debian 12; other systems have others. Its package is
// unpacked, not installed: that would start a daemon.
const prometheusVersion = "2.42.0+ds-5+deb12u1"

// prometheus returns the folder of Debian's prometheus and promtool.
func prometheus(t *testing.T) string {
	t.Helper()
	cache, err := rig.CacheDir()
	qt.Assert(t, qt.IsNil(err))
	dir := filepath.Join(cache, "prometheus-"+prometheusVersion)
	bin := filepath.Join(dir, "usr/bin")
	if _, err := os.Stat(bin); err == nil {
		return bin
	}
	unpacked := t.TempDir()
	c := exec.Command("sh", "-c", `get() { apt-get download -qq prometheus="$1" || apt-get download -qq prometheus; }
		{ get "$0" || { apt-get update -qq && get "$0"; }; } && dpkg-deb -x prometheus_*.deb out`, prometheusVersion)
	c.Dir = unpacked
	run(t, c)
	qt.Assert(t, qt.IsNil(os.MkdirAll(cache, 0o755)))
	run(t, exec.Command("cp", "-a", filepath.Join(unpacked, "out"), dir+".new"))
	qt.Assert(t, qt.IsNil(os.Rename(dir+".new", dir)))
	return bin
}

func run(t *testing.T, c *exec.Cmd) string {
	t.Helper()
	out, err := c.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%v: %s", c, out))
	return string(out)
}

// An instance is a service with made-up events, which listens in a namespace.
type instance struct {
	hub         *service.Hub
	addr        string
	certificate string
}

func (i *instance) apply(events ...event.Event) {
	for e := range events {
		i.hub.Apply(&events[e])
	}
}

// events are those of a process in a container, without failures.
func events() (list []event.Event) {
	for _, e := range pagetest.Failures() {
		if e.Kind == event.ProcessStart {
			e.Start.Container, e.Start.Pod = "c0ffee", "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
		}
		if e.Kind == event.DeviceOpen {
			e.Open.Capacities = pagetest.Capacities
		}
		if e.Kind != event.AllocFailed && e.Kind != event.ProcessExit {
			list = append(list, e)
		}
	}
	dram := pagetest.Buffer(event.Alloc, 99, event.DRAM, 0x2000, 1<<18, nil, 0)
	dram.PID = 7
	return append(list, dram)
}

func failure() event.Event {
	return event.Event{
		TimeNs: 3e9, Kind: event.AllocFailed, PID: 7, Devices: []int{0}, Region: event.L1, Reason: event.ReasonOutOfMemory,
	}
}

// newInstance serves at an address of the present network.
func newInstance(t *testing.T, addr string) *instance {
	path := filepath.Join(t.TempDir(), "token")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(token), 0o600)))
	secret, err := service.ReadSecret(path)
	qt.Assert(t, qt.IsNil(err))
	l, err := service.ListenTCP(addr, true, secret, func(text string) { t.Error(text) })
	qt.Assert(t, qt.IsNil(err))
	i := &instance{hub: service.NewHub(aggregate.New()), addr: strings.TrimPrefix(l.URLs()[0], "https://"), certificate: read(t, secret.Certificate)}
	i.apply(events()...)
	s := service.NewServer(i.hub, service.Options{Version: "1.2.3"})
	go func() { _ = s.ServeTCP(l) }()
	t.Cleanup(s.Close)
	return i
}

// TestPrometheusScrapesAFleet: Debian's Prometheus, with the configuration of docs/fleet, scrapes
// two hosts over their network with the token over HTTPS, all queries of the dashboard give something, and
// the alert for a failed allocation fires for the host where one fails.
func TestPrometheusScrapesAFleet(t *testing.T) {
	bin := prometheus(t)
	server := newNamespace(t)
	var hosts []*instance
	for n := range 2 {
		host := newNamespace(t)
		server.ip(t, fmt.Sprintf("link add to%d type veth peer name eth0 netns %s", n, host.path()))
		server.ip(t, fmt.Sprintf("addr add 10.77.%d.1/30 dev to%d", n, n))
		server.ip(t, fmt.Sprintf("link set to%d up", n))
		host.ip(t, fmt.Sprintf("addr add 10.77.%d.2/30 dev eth0", n))
		host.ip(t, "link set eth0 up")
		host.in(func() { hosts = append(hosts, newInstance(t, fmt.Sprintf("10.77.%d.2:9464", n))) })
	}
	dir := t.TempDir()
	config := read(t, docs+"/prometheus.yml")
	for was, now := range map[string]string{
		"_interval: 15s": "_interval: 250ms", "host-a:9464": hosts[0].addr, "host-b:9464": hosts[1].addr,
	} {
		qt.Assert(t, qt.StringContains(config, was))
		config = strings.ReplaceAll(config, was, now)
	}
	rules := read(t, docs+"/ttmem.rules.yml")
	for name, text := range map[string]string{"prometheus.yml": config, "ttmem.rules.yml": rules, "ttmem.token": token, "ttmem.crt": hosts[0].certificate + hosts[1].certificate} {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)))
	}
	run(t, exec.Command(filepath.Join(bin, "promtool"), "check", "config", filepath.Join(dir, "prometheus.yml")))

	var log bytes.Buffer
	c := exec.Command(filepath.Join(bin, "prometheus"), "--config.file="+filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:9090")
	c.Stdout, c.Stderr = &log, &log
	server.in(func() { qt.Assert(t, qt.IsNil(c.Start())) })
	t.Cleanup(func() {
		_ = c.Process.Signal(syscall.SIGTERM)
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s", log.String())
		}
	})
	p := &api{server}
	await(t, "both hosts are up", func() bool { return len(p.query(t, `up{job="ttmem"} == 1`)) == 2 })
	await(t, "there are two scrapes of each", func() bool {
		return len(p.query(t, `count_over_time(ttmem_processes[1m]) > 1`)) == 2
	})
	firing := func() (list []string) {
		var answer struct {
			Data struct {
				Alerts []struct {
					State  string
					Labels map[string]string
				}
			}
		}
		p.get(t, "alerts", &answer)
		for _, a := range answer.Data.Alerts {
			if a.State == "firing" {
				list = append(list, strings.Join([]string{a.Labels["alertname"], a.Labels["instance"], a.Labels["region"]}, " "))
			}
		}
		return list
	}
	qt.Check(t, qt.HasLen(firing(), 0))
	hosts[1].apply(failure())
	await(t, "the alert fires", func() bool { return len(firing()) > 0 })
	qt.Check(t, qt.DeepEquals(firing(), []string{"TtmemAllocationFailed " + hosts[1].addr + " L1"}))
	qt.Check(t, qt.HasLen(p.query(t, `ttmem_process_memory_used_bytes{container_id="c0ffee"}`), 4)) // two hosts, two regions
	for _, q := range dashboardQueries(t) {
		qt.Check(t, qt.IsTrue(len(p.query(t, q)) > 0), qt.Commentf("%s", q))
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	return string(text)
}

func await(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !condition(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// api sends requests to Prometheus in its namespace.
type api struct{ n namespace }

// get reads an answer; nothing while Prometheus starts.
func (p *api) get(t *testing.T, path string, answer any) {
	t.Helper()
	var text string
	p.n.in(func() {
		c, err := net.DialTimeout("tcp", "127.0.0.1:9090", time.Second)
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "GET /api/v1/%s HTTP/1.0\r\n\r\n", path)
		var b bytes.Buffer
		_, _ = b.ReadFrom(c)
		_, text, _ = strings.Cut(b.String(), "\r\n\r\n")
	})
	if strings.HasPrefix(text, "{") {
		qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(text), answer)))
	}
}

// query returns the series of a query.
func (p *api) query(t *testing.T, q string) []json.RawMessage {
	t.Helper()
	var answer struct {
		Error string
		Data  struct{ Result []json.RawMessage }
	}
	p.get(t, "query?query="+url.QueryEscape(q), &answer)
	qt.Assert(t, qt.Equals(answer.Error, ""), qt.Commentf("%s", q))
	return answer.Data.Result
}

// dashboardQueries returns the queries of the dashboard, as Grafana sends them.
func dashboardQueries(t *testing.T) (list []string) {
	var d struct {
		Inputs []struct{ Name string } `json:"__inputs"`
		Panels []struct {
			Title      string
			Datasource struct{ UID string }
			Targets    []struct {
				Expr       string
				Datasource struct{ UID string }
			}
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(read(t, docs+"/grafana.json")), &d)))
	qt.Assert(t, qt.HasLen(d.Inputs, 1))
	variables := strings.NewReplacer("$instance", ".*", "$chip", ".*", "$__rate_interval", "1m", "$__range", "1m")
	for _, panel := range d.Panels {
		qt.Check(t, qt.Equals(panel.Datasource.UID, "${"+d.Inputs[0].Name+"}"), qt.Commentf(panel.Title))
		qt.Check(t, qt.IsTrue(len(panel.Targets) > 0))
		for _, target := range panel.Targets {
			qt.Check(t, qt.Equals(target.Datasource.UID, panel.Datasource.UID))
			list = append(list, variables.Replace(target.Expr))
		}
	}
	return list
}

var metricName = regexp.MustCompile(`\bttmem_[a-z0-9_]+`)

// Each metric that a file names is one of ttmem's.
func TestFilesNameMetricsThatExist(t *testing.T) {
	i := newInstance(t, "127.0.0.1:0")
	i.apply(event.Event{TimeNs: 3e9, Kind: event.HostMemory, PID: 7, SizeBytes: 1 << 20, BytesPerBank: 2 << 20}, failure())
	scrape := string(fetch(t, i, "/metrics?processes=5"))
	for _, path := range []string{docs + "/grafana.json", docs + "/ttmem.rules.yml", "../../docs/fleet.md"} {
		names := metricName.FindAllString(read(t, path), -1)
		qt.Check(t, qt.IsTrue(len(names) > 0), qt.Commentf(path))
		for _, name := range names {
			qt.Check(t, qt.StringContains(scrape, "# HELP "+name+" "), qt.Commentf(path))
		}
	}
}

// fetch returns an answer for a client with the token.
func fetch(t *testing.T, i *instance, path string) []byte {
	t.Helper()
	r, err := http.NewRequest(http.MethodGet, "https://"+i.addr+path, nil)
	qt.Assert(t, qt.IsNil(err))
	r.Header.Set("Authorization", "Bearer "+token)
	trusted := x509.NewCertPool()
	qt.Assert(t, qt.IsTrue(trusted.AppendCertsFromPEM([]byte(i.certificate))))
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	answer, err := client.Do(r)
	qt.Assert(t, qt.IsNil(err))
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(answer.StatusCode, http.StatusOK), qt.Commentf("%s: %s", path, text))
	return text
}

// Each alert fires for its reason, and not for a chip that is well.
func TestAlertsFireForTheirReason(t *testing.T) {
	run(t, exec.Command(filepath.Join(prometheus(t), "promtool"), "test", "rules", "testdata/rules_test.yml"))
	tested := read(t, "testdata/rules_test.yml")
	for _, m := range regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(read(t, docs+"/ttmem.rules.yml"), -1) {
		qt.Check(t, qt.StringContains(tested, `alertname="`+m[1]+`"`))
	}
}
