package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
	"ttmem/e2e/tracetest"
)

// serverPackages are what model servers import. numpy is ttnn's.
var serverPackages = []string{
	"numpy==1.26.4", "pandas==2.3.3", "scipy==1.15.3", "scikit-learn==1.7.2", "transformers==4.57.6", "pydantic==2.12.5", "fastapi==0.124.4",
}

// ownersOf returns the owners of all buffers of a process, by their addresses, with the document of
// `ttmem dump` and what it says.
func ownersOf(t *testing.T, pid int) (owners map[uint64]string, document, said string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(ttmem, "dump", "--json", "-p", fmt.Sprint(pid))
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	qt.Assert(t, qt.IsNil(cmd.Run()), qt.Commentf("%s", &stderr))
	var dump struct {
		Buffers []struct {
			Address uint64
			Owner   string
		}
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(stdout.Bytes(), &dump)))
	owners = make(map[uint64]string)
	for _, b := range dump.Buffers {
		owners[b.Address] = b.Owner
	}
	return owners, stdout.String(), stderr.String()
}

// TestOwnersBesideTheLibrariesOfModelServers: in a process with hundreds of extension modules each buffer
// has its owner, also if it is in an object of these libraries, and, with 3.10, on a busy host. With -long PyTorch is
// among them.
func TestOwnersBesideTheLibrariesOfModelServers(t *testing.T) {
	t.Parallel()
	for _, python := range rig.PythonVersions {
		t.Run(python, func(t *testing.T) {
			t.Parallel()
			packages, err := rig.PythonWith(t.Context(), python, os.Stderr, serverPackages...)
			qt.Assert(t, qt.IsNil(err))
			args := []string{filepath.Join(filepath.Dir(packages), "..", "lib", "python"+python, "site-packages")}
			if *tracetest.Long && python == "3.10" {
				args = append(args, torchFor(t, setup(t, "0.81.1", python)))
			}
			pid, addresses := startHolder(t, "0.81.1", python, "owners_server.py", args...)
			qt.Assert(t, qt.HasLen(addresses, 37))
			check := func() {
				t.Helper()
				owners, _, said := ownersOf(t, pid)
				for path, at := range addresses {
					pattern := strings.ReplaceAll(regexp.QuoteMeta(path), `\*`, `.+`)
					qt.Check(t, qt.Matches(owners[at], pattern), qt.Commentf("%s: %s", path, said))
				}
			}
			if python == "3.10" {
				keepBusy(t)
			}
			check()
		})
	}
}

// TestASearchThatIsIncompleteSaysSo, and why, in place of who else may hold the buffers.
func TestASearchThatIsIncompleteSaysSo(t *testing.T) {
	t.Parallel()
	pid, addresses := startHolder(t, "0.81.1", "3.12", "owners_deep.py")
	qt.Assert(t, qt.HasLen(addresses, 1))
	owners, document, said := ownersOf(t, pid)
	qt.Check(t, qt.HasLen(owners, 2))
	qt.Check(t, qt.Equals(owners[addresses["known"]], "known"))
	const why = "more than 65536 frames of one thread"
	qt.Check(t, qt.StringContains(said, fmt.Sprintf("no owner found for 1 of 2 buffers of process %d: the search was incomplete (%s)", pid, why)))
	qt.Check(t, qt.Not(qt.StringContains(said, "C++")))
	var dump struct {
		Searches []struct {
			PID              int
			Incomplete       string
			Buffers, Unowned int
		} `json:"incomplete_owner_searches"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(document), &dump)))
	qt.Assert(t, qt.HasLen(dump.Searches, 1))
	one := dump.Searches[0]
	qt.Check(t, qt.Equals(fmt.Sprint(one), fmt.Sprintf("{%d %s 2 1}", pid, why)))
}
