package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// Packages of PyPI that tests use: what they install beside ttnn has fixed versions.
var (
	Visualizer = []string{"ttnn-visualizer==0.108.0"}
	Kubernetes = []string{"kubernetes-validate==1.37.0"}
	MCP        = []string{"mcp==2.3.0"} // the Model Context Protocol's own client
	perfetto   = []string{"perfetto==0.59.1", "protobuf==7.36.2"}
)

// Notebook are the packages beside which the Python package is tested.
func Notebook(pandas string) []string {
	return []string{"pandas==" + pandas, "pytest==8.4.2", "pytest-xdist==3.8.0", "ipython==8.37.0", "hatchling==1.27.0", "nbconvert==7.16.6", "ipykernel==6.30.1"}
}

// Arrow are Notebook and what the Python package uses where it is installed.
func Arrow(pandas string) []string {
	return append(Notebook(pandas), "pyarrow==25.0.1", "matplotlib==3.10.9", "mypy==2.4.1")
}

// Pandas are releases of pandas for versions of Python: the last one before 3 and one after it.
var Pandas = map[string]string{"3.10": "2.3.3", "3.12": "3.1.1"}

// Nanobind returns the folder of a module with nanobind that other versions of Python than ttnn's can
// import.
func Nanobind(ctx context.Context, python string) (string, error) {
	return Wheel(ctx, "manifold3d", "3.5.4", python)
}

// OldestPython is the oldest one that the Python package supports, and the suite of Debian that has it.
var OldestPython = struct{ Suite, Version string }{"bullseye", "3.9"}

// Debian has the versions of Python for which there is no ttnn, each with the suite that has it.
var Debian = []struct{ Suite, Version string }{{"bookworm", "3.11"}, {"trixie", "3.13"}, {"forky", "3.14"}}

// A part is something that tests install or download once.
type part struct {
	name string
	path string // in the cache; it exists when the part is complete
	make func(ctx context.Context, progress io.Writer) error
}

// olderReleases are the parts that only tests of older releases need.
func olderReleases() (list []part) {
	for _, release := range []string{"0.76.0", "0.72.0", "0.66.0"} {
		for _, python := range PythonVersions {
			list = append(list, ttnn(release, python))
		}
	}
	for _, release := range []string{"0.80.0", "0.75.0", "0.68.0"} {
		list = append(list, ttnn(release, "3.10"))
	}
	return list
}

// ttnn is a release for a version of Python.
func ttnn(release, python string) part {
	return part{"ttnn " + release + " for Python " + python, filepath.Join(envDir("", release, python), marker),
		func(ctx context.Context, progress io.Writer) error {
			_, err := Setup(ctx, Options{Version: release, Python: python, Progress: progress})
			return err
		}}
}

// parts are what all other tests need, those that take longest first.
func parts(cache string) (list []part) {
	for _, python := range PythonVersions {
		list = append(list, ttnn(DefaultVersion, python))
	}
	for _, release := range []string{"0.60.1", "0.64.5", "0.68.0", "0.72.0", "0.76.0"} {
		path := filepath.Join("lib", release)
		for _, python := range PythonVersions { // Library takes the file of an installation
			installed := ttnn(release, python).path
			if _, err := os.Stat(filepath.Join(cache, installed)); err == nil {
				path = installed
			}
		}
		list = append(list, part{"libtt_metal.so of ttnn " + release, path, func(ctx context.Context, _ io.Writer) error {
			_, err := Library(ctx, release)
			return err
		}})
	}
	python := func(version string, packages []string) {
		list = append(list, part{packages[0] + " for Python " + version, filepath.Join(packagesDir("", version, packages), marker),
			func(ctx context.Context, progress io.Writer) error {
				_, err := PythonWith(ctx, version, progress, packages...)
				return err
			}})
	}
	python("3.10", Visualizer)
	python("3.12", Kubernetes)
	python("3.12", perfetto)
	python("3.12", MCP)
	for _, version := range PythonVersions {
		python(version, Notebook(Pandas[version]))
	}
	python("3.12", Arrow(Pandas["3.12"]))
	folder := func(name, path string, make func(ctx context.Context) (string, error)) {
		list = append(list, part{name, path, func(ctx context.Context, _ io.Writer) error {
			_, err := make(ctx)
			return err
		}})
	}
	for _, p := range append(Debian, OldestPython) {
		folder("Python "+p.Version+" of Debian", filepath.Join("debian", p.Suite+"-python"+p.Version), func(ctx context.Context) (string, error) {
			python, err := DebianPython(ctx, p.Suite, p.Version)
			return python.Exe, err
		})
	}
	for _, p := range Debian {
		folder("a module for Python "+p.Version, filepath.Join("packages", "manifold3d-3.5.4-cp"+strings.ReplaceAll(p.Version, ".", "")),
			func(ctx context.Context) (string, error) { return Nanobind(ctx, p.Version) })
	}
	folder("headers of Python 3.14", filepath.Join("debian", "forky-libpython3.14-dev"), func(ctx context.Context) (string, error) {
		folders, err := PythonHeaders(ctx)
		return folders[0], err
	})
	folder("pytest for ttnn", pytestFor("3.10"), func(ctx context.Context) (string, error) {
		env, err := Setup(ctx, Options{Version: DefaultVersion, Python: "3.10"})
		if err != nil {
			return "", err
		}
		return env.Pytest(ctx)
	})
	return list
}

// SetUpAll installs and downloads what the tests of the newest release need, or those of the older ones, and prints a
// line for each part: what it is, how long it took and its size. Without it, tests do that when they need a part, and
// `go test` shows nothing of it.
func SetUpAll(ctx context.Context, older bool, to io.Writer) error {
	cache, err := CacheDir()
	if err != nil {
		return err
	}
	needed := parts(cache)
	if older {
		needed = olderReleases()
	}
	var missing []part
	for _, p := range needed {
		if _, err := os.Stat(filepath.Join(cache, p.path)); err != nil {
			missing = append(missing, p)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	fmt.Fprintf(to, "setting up what the tests need, once: %d of %d parts, in %s\n", len(missing), len(needed), cache)
	began := time.Now()
	var (
		mu     sync.Mutex
		failed []error
		done   int
		group  sync.WaitGroup
	)
	say := func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(to, format, args...)
	}
	next := make(chan part, len(missing))
	for _, p := range missing {
		next <- p
	}
	close(next)
	for range 2 { // one downloads while another one unpacks
		group.Go(func() {
			for p := range next {
				if ctx.Err() != nil {
					return
				}
				say("        setting up %s …\n", p.name)
				start := time.Now()
				err := p.make(ctx, retries{say})
				took := time.Since(start).Seconds()
				mu.Lock()
				done++
				n := done
				if err != nil {
					failed = append(failed, fmt.Errorf("%s: %w", p.name, err))
				}
				mu.Unlock()
				if err != nil {
					say("[%2d/%d] %s: failed after %.0f s: %v\n", n, len(missing), p.name, took, err)
				} else {
					say("[%2d/%d] %s … %.0f s, %d MB\n", n, len(missing), p.name, took, megabytes(filepath.Join(cache, p.path)))
				}
			}
		})
	}
	group.Wait()
	if err := ctx.Err(); err != nil {
		return err
	}
	fmt.Fprintf(to, "set up %d of %d parts in %.0f s\n", len(missing)-len(failed), len(missing), time.Since(began).Seconds())
	if len(failed) > 0 {
		return fmt.Errorf("not set up:\n%w", errors.Join(failed...))
	}
	return nil
}

// retries passes on what is said of failed downloads: SetUpAll says the rest itself.
type retries struct{ say func(string, ...any) }

func (r retries) Write(b []byte) (int, error) {
	if strings.Contains(string(b), tryingAgain) {
		r.say("        %s", b)
	}
	return len(b), nil
}

// megabytes is the size of a part: of a folder, or of the folder with its marker.
func megabytes(path string) (n int64) {
	if filepath.Base(path) == marker {
		path = filepath.Dir(path)
	}
	_ = filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			if info, err := d.Info(); err == nil {
				n += info.Size()
			}
		}
		return nil
	})
	return n / 1e6
}
