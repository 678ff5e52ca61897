package rig

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
)

// freeThreaded is the folder of the free-threaded Python in the cache.
var freeThreaded = filepath.Join("debian", "trixie-python3.13t")

// HasFreeThreadedPython reports whether FreeThreadedPython has been built.
func HasFreeThreadedPython() bool {
	cache, err := CacheDir()
	return err == nil && executable(filepath.Join(cache, freeThreaded, "bin", "python3"))
}

// FreeThreadedPython returns a free-threaded CPython, with its headers. It builds it once, which takes a processor
// some minutes, from the source of Debian's package: no archive that the rig uses has one that is built.
func FreeThreadedPython(ctx context.Context) (Interpreter, error) {
	dir, err := downloaded(ctx, freeThreaded, "files", func(work string) error {
		apt, err := debianLists(ctx, work, "deb-src", "trixie")
		if err == nil {
			err = apt("source", "--download-only", "--tar-only", "python3.13")
		}
		if err != nil {
			return err
		}
		return runIn(ctx, work, "sh", "-ec", `
mkdir source build
tar -xf python3.13_*.tar.xz --strip-components=1 -C source
cd build
../source/configure -q --disable-gil --disable-test-modules --without-ensurepip CFLAGS=-O2 >log 2>&1
make -s -j2 python sharedmods >>log 2>&1 || { tail -n 20 log; exit 1; }
files=../files lib=../files/lib/python3.13t
mkdir -p $files/bin $files/include $lib/lib-dynload
cp python $files/bin/python3
cp -r ../source/Lib/. $lib
rm -rf $lib/test
cp -L "$(cat pybuilddir.txt)"/*.so $lib/lib-dynload
cp "$(cat pybuilddir.txt)"/_sysconfigdata*.py $lib
cp -r ../source/Include $files/include/python3.13t
cp pyconfig.h $files/include/python3.13t
`)
	})
	if err != nil {
		return Interpreter{}, err
	}
	p := Interpreter{Exe: filepath.Join(dir, "bin", "python3")}
	out, err := exec.CommandContext(ctx, p.Exe, "-c", "import platform; print(platform.python_version())").Output()
	p.Version = strings.TrimSpace(string(out))
	p.Name = p.Version + "t"
	return p, err
}

// PythonHeaders returns the folders with the headers of CPython 3.14, its own ones included. They are the same for
// builds with a GIL and without.
func PythonHeaders(ctx context.Context) ([]string, error) {
	const name = "libpython3.14-dev"
	dir, err := debianFiles(ctx, "forky", name, func(dir string, apt func(args ...string) error) error {
		return unpack(ctx, dir, apt, name)
	})
	include := filepath.Join(dir, "usr", "include")
	return []string{filepath.Join(include, "python3.14"), include}, err
}
