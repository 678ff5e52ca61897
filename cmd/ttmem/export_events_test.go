package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// tree is the folder of the tree: tests change their own.
var tree, _ = filepath.Abs("../..")

// exampleQueries are the queries of docs/export-sqlite.md.
func exampleQueries(t *testing.T) (list []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(tree, "docs/export-sqlite.md"))
	qt.Assert(t, qt.IsNil(err))
	for _, after := range strings.Split(string(text), "\n```sql\n")[1:] {
		query, _, _ := strings.Cut(after, "```")
		list = append(list, query)
	}
	qt.Assert(t, qt.HasLen(list, 5))
	return list
}

// answers are what Debian's sqlite3 answers to the example queries.
func answers(t *testing.T, file []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "model.db")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, file, 0o600)))
	var text strings.Builder
	for _, query := range exampleQueries(t) {
		text.WriteString(answerOf(t, "sqlite3", "-bail", "-header", "-column", path, query) + "\n")
	}
	return text.String()
}

// answerOf is what a program prints.
func answerOf(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	return string(out)
}

// TestOtherProgramsSeeThePeaks: the peaks of real programs, in Perfetto and in SQL.
func TestOtherProgramsSeeThePeaks(t *testing.T) {
	python, err := rig.PerfettoProtos(t.Context())
	qt.Assert(t, qt.IsNil(err))
	for _, s := range goldenStories {
		t.Run(s.name, func(t *testing.T) {
			recording := filepath.Join(t.TempDir(), s.name+".ttmem")
			readStory(t, storyEvents(goldenFolder, s.name)).record(t, recording, storyCheckpoint)
			exported := func(format string) string {
				path := recording + "." + format
				_, errs, status := runOnStreams(t, false, []string{"export", recording, "--to", format, "-o", path})
				qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s", errs))
				return path
			}
			want := make(map[string]uint64)
			var doc struct {
				OverlapCount uint64 `json:"overlap_count"`
				Devices      []struct {
					ID      int
					Regions map[string]struct {
						PeakBytes uint64 `json:"peak_bytes"`
					}
				}
			}
			out, _, _ := runOnStreams(t, false, []string{"report", recording, "--json"})
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(out), &doc)))
			for _, d := range doc.Devices {
				for region, r := range d.Regions {
					if r.PeakBytes > 0 { // that of L1 includes circular buffers
						want[fmt.Sprintf("chip %d %s", d.ID, region)] = r.PeakBytes
					}
				}
			}
			qt.Assert(t, qt.IsTrue(len(want) > 0))

			var list strings.Builder
			for _, name := range slices.Sorted(maps.Keys(want)) {
				fmt.Fprintf(&list, "%s|%d\n", name, want[name])
			}
			var traced struct{ Counters map[string][][2]uint64 }
			qt.Assert(t, qt.IsNil(json.Unmarshal([]byte(answerOf(t, python, filepath.Join(tree, "aggregate/export/perfetto/testdata/read.py"), exported("perfetto"))), &traced)))
			highest := make(map[string]uint64)
			for name, list := range traced.Counters {
				if chip, region, _ := strings.Cut(strings.ToLower(name[:1])+name[1:], "/"); !strings.HasPrefix(region, "L1 per core") {
					for _, one := range list {
						highest[chip+" "+region] = max(highest[chip+" "+region], one[1])
					}
				}
			}
			qt.Check(t, qt.DeepEquals(highest, want))
			database := exported("sqlite")
			qt.Check(t, qt.Equals(answerOf(t, "sqlite3", database, `SELECT printf('chip %d %s', chip, region), peak_bytes FROM regions
				WHERE peak_bytes IS NOT NULL ORDER BY 1; PRAGMA foreign_key_check`), list.String()))
			if doc.OverlapCount > 0 {
				return // other programs count memory that several allocators assigned each time
			}
			qt.Check(t, qt.Equals(answerOf(t, "sqlite3", database, `WITH changes AS (
					SELECT chip, region, birth_ns AS time_ns, allocated_bytes AS bytes FROM buffers JOIN chip_sets USING (chip_set)
					UNION ALL SELECT chip, region, death_ns, -allocated_bytes FROM buffers JOIN chip_sets USING (chip_set) WHERE death_ns IS NOT NULL),
				uses AS (SELECT chip, region, sum(bytes) OVER (PARTITION BY chip, region ORDER BY time_ns) AS bytes FROM changes)
				SELECT printf('chip %d %s', chip, region) AS name, max(bytes) FROM uses WHERE region != 'L1' GROUP BY 1 ORDER BY 1`), list.String()))
		})
	}
}
