package lines

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"ttmem/symbolize"
)

// split builds a library, moves its debug information into another file and strips it.
func split(t *testing.T, link string, flags ...string) (whole, stripped, debug string) {
	t.Helper()
	whole = built(t, "g++", append([]string{"-g", "-O2"}, flags...)...)
	dir := filepath.Dir(whole)
	stripped, debug = filepath.Join(dir, "stripped.so"), filepath.Join(dir, link)
	run(t, dir, "objcopy", "--only-keep-debug", whole, debug)
	run(t, dir, "objcopy", "--strip-all", "--add-gnu-debuglink="+debug, whole, stripped)
	return whole, stripped, debug
}

func move(t *testing.T, from, to string) {
	t.Helper()
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(to), 0o755)))
	b, err := os.ReadFile(from)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(os.WriteFile(to, b, 0o644)))
	qt.Assert(t, qt.IsNil(os.Remove(from)))
}

func TestDebugFile(t *testing.T) {
	for _, test := range []struct {
		name  string
		place string // below the root, ID for the path by build ID
	}{
		{"beside", "/opt/lib/lib.debug"},
		{"in .debug", "/opt/lib/.debug/lib.debug"},
		{"in the system's directory", "/usr/lib/debug/opt/lib/lib.debug"},
		{"by build id", "ID"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := t.TempDir()
			whole, stripped, debug := split(t, "lib.debug", "-Wl,--build-id=sha1")
			e := mustOpen(t, stripped)
			place := test.place
			if place == "ID" {
				place = "/usr/lib/debug/.build-id/" + e.BuildID()[:2] + "/" + e.BuildID()[2:] + ".debug"
			}
			move(t, debug, filepath.Join(root, place))
			sameFrames(t, whole, stripped, root, "/opt/lib/stripped.so")
		})
	}
}

// Files in the right place that belong to another library are ignored.
func TestOtherDebugFile(t *testing.T) {
	for _, id := range []string{"none", "sha1"} {
		t.Run(id, func(t *testing.T) {
			whole, stripped, debug := split(t, "lib.debug", "-Wl,--build-id="+id)
			_, _, other := split(t, "lib.debug", "-Wl,--build-id="+id, "-O1")
			run := mustLookup(t, mustOpen(t, whole), "_Z3runi").Addr

			root := t.TempDir()
			move(t, other, filepath.Join(root, "lib.debug"))
			n := mustNew(t, stripped, root, "lib.so")
			defer n.Close()
			got := n.At(run)
			qt.Assert(t, qt.DeepEquals(got, []symbolize.Function{{Name: "run", Symbol: "_Z3runi"}}))

			for name, make := range map[string]func(string) error{
				"a directory": func(p string) error { return os.Mkdir(p, 0o755) },
				"a loop":      func(p string) error { return os.Symlink("lib.debug", p) },
				"text":        func(p string) error { return os.WriteFile(p, []byte("text"), 0o644) },
				"half of it": func(p string) error {
					b, err := os.ReadFile(debug)
					qt.Assert(t, qt.IsNil(err))
					return os.WriteFile(p, b[:len(b)/2], 0o644)
				},
			} {
				root := t.TempDir()
				qt.Assert(t, qt.IsNil(make(filepath.Join(root, "lib.debug"))))
				n := mustNew(t, stripped, root, "lib.so")
				qt.Check(t, qt.DeepEquals(n.At(run), got), qt.Commentf("%s", name))
				n.Close()
			}
		})
	}
}

// Functions that a stripped file does not export are named by the symbol table of its debug
// file.
func TestSymbolsOfDebugFile(t *testing.T) {
	whole, stripped, debug := split(t, "lib.debug", "-Wl,--build-id=sha1")
	run(t, filepath.Dir(debug), "objcopy", "--strip-debug", debug)
	run(t, filepath.Dir(debug), "objcopy", "--remove-section=.gnu_debuglink", "--add-gnu-debuglink="+debug, stripped)
	cold := mustLookup(t, mustOpen(t, whole), "_ZL4coldi")
	n := mustNew(t, stripped, filepath.Dir(debug), "stripped.so")
	defer n.Close()
	qt.Assert(t, qt.DeepEquals(n.At(cold.Addr), []symbolize.Function{{Name: "cold", Symbol: "_ZL4coldi"}}))
	qt.Assert(t, qt.HasLen(n.At(cold.Addr-1<<20), 0))
}

// TestDeleted reads a file that was deleted.
func TestDeleted(t *testing.T) {
	file := built(t, "g++", "-g", "-O2")
	e := mustOpen(t, file)
	addr := mustLookup(t, e, "plain").Addr
	n := mustNew(t, file, "", "")
	qt.Assert(t, qt.IsNil(os.Remove(file)))
	got := n.At(addr)
	qt.Assert(t, qt.IsTrue(len(got) > 0))
	last := got[len(got)-1]
	qt.Assert(t, qt.Equals(last.Name, "plain"))
	qt.Assert(t, qt.IsTrue(strings.HasSuffix(last.File, "/sink.cpp")))
	qt.Assert(t, qt.Equals(last.Line, 10))
}

// TestFind finds files by path and build ID, as in recordings.
func TestFind(t *testing.T) {
	file := built(t, "g++", "-g", "-O2", "-Wl,--build-id=sha1")
	e := mustOpen(t, file)
	n := Find(file, e.BuildID(), below("/"))
	qt.Assert(t, qt.IsNotNil(n))
	defer n.Close()
	got := n.At(mustLookup(t, e, "plain").Addr)
	qt.Assert(t, qt.IsTrue(strings.HasSuffix(got[len(got)-1].File, "/sink.cpp")))

	run(t, filepath.Dir(file), "objcopy", "--strip-debug", file, "stripped.so")
	pipe := filepath.Join(t.TempDir(), "pipe")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(pipe, 0o600)))
	for name, of := range map[string][2]string{
		"another build":        {file, strings.Repeat("ab", 20)},
		"no build id":          {file, ""},
		"no file":              {file + "x", e.BuildID()},
		"no debug information": {filepath.Join(filepath.Dir(file), "stripped.so"), e.BuildID()},
		"a pipe":               {pipe, e.BuildID()},
		"a device":             {"/dev/zero", e.BuildID()},
		"a path that leads up": {"/usr/../../..", "../../../../etc/passwd"},
	} {
		qt.Check(t, qt.IsNil(Find(of[0], of[1], below("/"))), qt.Commentf("%s", name))
	}
}
