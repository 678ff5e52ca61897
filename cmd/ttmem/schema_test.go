package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/cmd/ttmem/internal/document"
	"ttmem/e2e/pagetest"
	"ttmem/tracer/event"
)

// documentOf is the name in docs/schema.json of what a command prints with --json.
func documentOf(args string) string {
	command, rest, _ := strings.Cut(args, " ")
	switch {
	case command == "log":
		return "event"
	case command == "dump" && strings.Contains(rest, "--by"):
		return "dump_groups"
	}
	return command
}

// TestSchema validates the golden JSON documents of all stories, and the first events of each
// kind.
func TestSchema(t *testing.T) {
	for _, s := range goldenStories {
		t.Run(s.name, func(t *testing.T) {
			for _, c := range s.commands {
				if c.form == goldenText || c.exported != nil {
					continue
				}
				text, err := os.ReadFile(filepath.Join(goldenFolder, s.name, c.name+"."+string(goldenJSON)))
				qt.Assert(t, qt.IsNil(err))
				printed, _, _ := strings.Cut("\n"+string(text), "\n--- ")
				documents := json.NewDecoder(strings.NewReader(printed))
				for documents.More() {
					var one json.RawMessage
					qt.Assert(t, qt.IsNil(documents.Decode(&one)), qt.Commentf("%s", c.name))
					pagetest.CheckSchema(t, documentOf(c.args), string(one))
				}
			}
			seen := make(map[event.Kind]int)
			for _, e := range readStory(t, storyEvents(goldenFolder, s.name)).events {
				if seen[e.Kind]++; seen[e.Kind] <= 3 && e.Kind != event.Checkpoint {
					pagetest.CheckSchema(t, "event", string(document.Append(nil, e.Record(), nil)))
				}
			}
		})
	}
}

// TestSchemaFindsWhatIsNotDescribed: a field that was added or removed, and one of another type.
func TestSchemaFindsWhatIsNotDescribed(t *testing.T) {
	const described = `{"v":1,"regions":[],"lost":{}}`
	qt.Check(t, qt.IsNil(pagetest.FitsSchema(t, "map", described)))
	for _, other := range []string{
		`{"v":1,"regions":[],"lost":{},"new":1}`, `{"v":1,"lost":{}}`, `{"v":1,"regions":7,"lost":{}}`, `{"v":2,"regions":[],"lost":{}}`,
	} {
		qt.Check(t, qt.IsNotNil(pagetest.FitsSchema(t, "map", other)), qt.Commentf("%s", other))
	}
}

// TestPIDImpliesUser: what has a pid in the schema has a user, except for the pid of ttmem itself.
func TestPIDImpliesUser(t *testing.T) {
	text, err := os.ReadFile("../../docs/schema.json")
	qt.Assert(t, qt.IsNil(err))
	var schema struct {
		Defs map[string]any `json:"$defs"`
	}
	qt.Assert(t, qt.IsNil(json.Unmarshal(text, &schema)))
	delete(schema.Defs, "health")
	found := 0
	var check func(where string, value any)
	check = func(where string, value any) {
		switch v := value.(type) {
		case map[string]any:
			if _, hasPID := v["pid"]; hasPID {
				found++
				qt.Check(t, qt.DeepEquals[any](v["user"], map[string]any{"$ref": "#/$defs/user"}), qt.Commentf("%s", where))
			}
			for key, one := range v {
				check(where+"/"+key, one)
			}
		case []any:
			for _, one := range v {
				check(where, one)
			}
		}
	}
	check("", schema.Defs)
	qt.Check(t, qt.IsTrue(found > 10))
}

// TestDocumentsHaveUsers: wherever a document of a story has the pid of a process, it has the user.
func TestDocumentsHaveUsers(t *testing.T) {
	dir := t.TempDir()
	for _, story := range []string{"crowd", "fragments", "marks"} {
		file := filepath.Join(dir, story+".ttmem")
		readStory(t, storyEvents(goldenFolder, story)).record(t, file, storyCheckpoint)
		documents := make(map[string]string)
		for _, args := range []string{
			"log", "report", "dump --at peak", "dump --at peak --by stack", "peak", "peak --by stack", "ops", "leaks", "leaks --by process", "oom", "map --at peak", "diff " + file,
		} {
			out, errs, status := runOnStreams(t, false, append(strings.Fields(args), file, "--json"))
			qt.Assert(t, qt.Equals(status, 0), qt.Commentf("%s: %s", args, errs))
			documents[args] = out
		}
		for args, out := range documents {
			qt.Check(t, qt.Equals(strings.Count(out, `,"user":"`), strings.Count(out, `"pid":`)), qt.Commentf("%s %s", args, story))
			if args == "log" {
				out, _, _ = strings.Cut(out, "\n")
			}
			pagetest.CheckSchema(t, documentOf(args), out)
		}
	}
}
