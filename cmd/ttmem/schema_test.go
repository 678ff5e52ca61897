package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

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
					pagetest.CheckSchema(t, "event", string(e.AppendJSON(nil)))
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
