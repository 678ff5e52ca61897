package top

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/pagetest"
)

// TestPictures compares the pictures of docs/top.md with what the view draws now: -update
// draws them anew.
func TestPictures(t *testing.T) {
	for _, test := range []struct {
		name          string
		width, height int
		show          func(s *stage)
	}{
		{"top-galaxy", 120, 34, func(*stage) {}},
		{"top-unfolded", 140, 40, func(s *stage) { s.press("f") }},
		{"top-growth", 100, 28, func(s *stage) {
			s.press("]", "]", "]", "]", "m")
			s.scene.Steps(40)
			s.refresh()
		}},
		{"top-stack", 100, 24, func(s *stage) { s.press("down", "enter") }},
		{"top-graph", 100, 24, func(s *stage) { s.press("]", "t") }},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newStage(t, test.width, test.height)
			s.Color = true
			s.scene.Steps(250) // some 10,000 events in that second
			s.refresh()
			test.show(s)
			got := pagetest.DrawSVG(s.frame(), s.width)
			path := filepath.Join("..", "..", "..", "..", "docs", "images", test.name+".svg")
			if *update {
				qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(got), 0o644)))
			}
			want, err := os.ReadFile(path)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.IsTrue(got == string(want)), qt.Commentf("go test ./cmd/ttmem/internal/top -update draws %s anew", path))
		})
	}
}
