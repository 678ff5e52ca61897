package tracetest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"ttmem/e2e/rig"
)

// With -releases older and with -releases newest, no release is tested twice and none is left out.
func TestEachReleaseIsTestedOnce(t *testing.T) {
	defer func(old string) { tested = old }(tested)
	for _, release := range []string{"", rig.DefaultVersion, "0.76.0", "0.68.0"} {
		var in []string
		for _, tested = range []string{newest, older} {
			if Tests(release) {
				in = append(in, tested)
			}
		}
		want := older
		if release == "" || release == rig.DefaultVersion {
			want = newest
		}
		qt.Check(t, qt.DeepEquals(in, []string{want}), qt.Commentf("%q", release))
		tested = every
		qt.Check(t, qt.IsTrue(Tests(release)), qt.Commentf("%q", release))
	}
	qt.Check(t, qt.ErrorMatches(setTested("old"), "want newest, older or all"))
}

// Older releases are tested by all tests that ask for them, and a test that would be left out is an error.
func TestReleaseTests(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		qt.Assert(t, qt.IsNil(os.WriteFile(filepath.Join(dir, name), []byte("package e2e\n"+text), 0o600)))
	}
	const asks = "(t *testing.T) {\n\tif tracetest.Tests(version) {\n\t}\n}\n"
	write("a_test.go", "\nfunc TestUnit(t *testing.T) {\n}\n\nfunc help(t *testing.T) {\n}\n")
	_, err := releaseTests(dir)
	qt.Check(t, qt.ErrorMatches(err, "no test of this package calls tracetest.Tests, .*"))

	write("b_test.go", "\nfunc TestOne"+asks+"\nfunc help(t *testing.T) {\n}\n\nfunc TestTwo"+asks)
	write("c_test.go", "\nfunc TestThree"+asks)
	pattern, err := releaseTests(dir)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(pattern, "^(TestOne|TestTwo|TestThree)$"))

	write("d_test.go", "\nfunc tables"+asks)
	_, err = releaseTests(dir)
	qt.Check(t, qt.ErrorMatches(err, ".*d_test.go: tables calls tracetest.Tests: .*"))
}
