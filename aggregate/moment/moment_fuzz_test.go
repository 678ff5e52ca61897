package moment

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// FuzzMoment: a moment is what was written, or an error that names it.
func FuzzMoment(f *testing.F) {
	for _, text := range []string{"end", "left", "2.5s", "-1s", "warm#2", "mark:end#3", "failure#1", "#", "#1", "x#-1", "9223372036854775807ns", "mark:"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, err := Parse(text)
		if err != nil {
			qt.Check(t, qt.StringContains(err.Error(), text))
			return
		}
		qt.Check(t, qt.Equals(m.Text, text))
		qt.Check(t, qt.IsTrue(m.Nth >= 0 && m.Time >= 0 && m.which(3) >= 1))
		if m.Kind == Mark {
			marked, err := Parse("mark:" + m.Name)
			qt.Check(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(marked.Kind, Mark))
		}
		_ = m.String() + m.Of("model.ttmem")
	})
}
