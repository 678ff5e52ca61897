package fleet

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.yaml.in/yaml/v3"

	"ttmem/e2e/rig"
)

// pprof reads the profiles, with the functions of the call stacks.
func TestPprofReadsTheProfiles(t *testing.T) {
	i := newInstance(t, "127.0.0.1:0")
	for path, want := range map[string]string{"device_memory": "Type: inuse_space", "device_memory_alloc": "Type: alloc_space"} {
		file := filepath.Join(t.TempDir(), "profile.pb.gz")
		qt.Assert(t, qt.IsNil(os.WriteFile(file, fetch(t, i, "/debug/pprof/"+path+"?region=all"), 0o600)))
		out := run(t, exec.Command("go", "tool", "pprof", "-top", file))
		qt.Check(t, qt.StringContains(out, want))
		qt.Check(t, qt.StringContains(out, "call_10"))
	}
}

// documentsIn returns the documents of a YAML file, which may not have a key twice.
func documentsIn(t *testing.T, path string) (list []map[string]any) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(read(t, path)))
	for {
		var one map[string]any
		err := d.Decode(&one)
		if errors.Is(err, io.EOF) {
			return list
		}
		qt.Assert(t, qt.IsNil(err), qt.Commentf(path))
		list = append(list, one)
	}
}

// at returns the value at a path of keys and indices.
func at(v any, path ...any) any {
	for _, key := range path {
		switch key := key.(type) {
		case string:
			v = v.(map[string]any)[key]
		case int:
			v = v.([]any)[key]
		}
	}
	return v
}

// The DaemonSet has the capabilities of the systemd unit, and a token that others cannot read.
func TestDaemonSetHasThePrivilegesOfTheUnit(t *testing.T) {
	documents := documentsIn(t, docs+"/daemonset.yaml")
	qt.Assert(t, qt.HasLen(documents, 2))
	pod := at(documents[1], "spec", "template", "spec")
	var added []string
	security := at(pod, "containers", 0, "securityContext")
	for _, name := range at(security, "capabilities", "add").([]any) {
		added = append(added, "CAP_"+name.(string))
	}
	unit := regexp.MustCompile(`(?m)^CapabilityBoundingSet=(.*)$`).FindStringSubmatch(read(t, "../../docs/service/ttmem.service"))
	qt.Check(t, qt.Equals(strings.Join(added, " "), unit[1]))
	qt.Check(t, qt.Equals(at(security, "privileged"), any(false)))
	qt.Check(t, qt.Equals(at(pod, "hostPID"), any(true)))
	qt.Check(t, qt.Equals(at(pod, "volumes", 2, "secret", "defaultMode"), any(0o400)))
	qt.Check(t, qt.DeepEquals(at(documents[1], "spec", "selector", "matchLabels"), at(documents[1], "spec", "template", "metadata", "labels")))
}

// The scrape configurations name paths that ttmem answers, and a time-out that Parca accepts.
func TestScrapeConfigurationsNameProfiles(t *testing.T) {
	i := newInstance(t, "127.0.0.1:0")
	scrape := at(documentsIn(t, docs+"/parca.yaml")[0], "scrape_configs", 0)
	length := func(key string) time.Duration {
		d, err := time.ParseDuration(at(scrape, key).(string))
		qt.Assert(t, qt.IsNil(err))
		return d
	}
	qt.Check(t, qt.IsTrue(length("scrape_timeout") > length("scrape_interval")))
	for _, file := range []string{"parca.yaml", "config.alloy"} {
		paths := regexp.MustCompile(`/debug/pprof/\w+`).FindAllString(read(t, docs+"/"+file), -1)
		qt.Check(t, qt.HasLen(paths, 2))
		for _, path := range paths {
			qt.Check(t, qt.IsTrue(len(fetch(t, i, path)) > 0))
		}
	}
}

// Kubernetes' schemas, of a release with the security context's AppArmor profile and of the newest that
// the package has, know all fields of the DaemonSet.
func TestKubernetesKnowsTheDaemonSet(t *testing.T) {
	python, err := rig.PythonWith(t.Context(), "3.12", os.Stderr, rig.Kubernetes...)
	qt.Assert(t, qt.IsNil(err))
	validate := func(path string) (string, error) {
		out, err := exec.Command(python, "-m", "kubernetes_validate", "--strict", "-k", "1.30", "-k", "1.37", path).CombinedOutput()
		return string(out), err
	}
	out, err := validate(docs + "/daemonset.yaml")
	qt.Check(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.Equals(strings.Count(out, "passed"), 4), qt.Commentf("%s", out)) // two documents
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	text := strings.Replace(read(t, docs+"/daemonset.yaml"), "allowPrivilegeEscalation", "allowPrivilegesEscalation", 1)
	qt.Assert(t, qt.IsNil(os.WriteFile(wrong, []byte(text), 0o600)))
	out, err = validate(wrong)
	qt.Check(t, qt.IsNotNil(err), qt.Commentf("%s", out))
}

// Grafana Alloy's own parser reads its configuration.
func TestAlloyReadsItsConfiguration(t *testing.T) {
	parse := func(text string) (string, error) {
		path := filepath.Join(t.TempDir(), "config.alloy")
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o600)))
		cmd := exec.Command("go", "run", "-C", "testdata/alloy", ".", path)
		cmd.Stderr = t.Output() // of Go as well, which downloads the parser
		out, err := cmd.Output()
		return string(out), err
	}
	text := read(t, docs+"/config.alloy")
	out, err := parse(text)
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(out, "pyroscope.scrape ttmem\npyroscope.write pyroscope\n"))
	_, err = parse(strings.Replace(text, "enabled = true", "enabled: true", 1))
	qt.Check(t, qt.IsNotNil(err))
}
