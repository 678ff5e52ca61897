package rig

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// libraryNames are the files that may contain tt_metal, in order of preference: the oldest
// wheels link it into _ttnncpp.so.
var libraryNames = []string{"libtt_metal.so", "_ttnncpp.so"}

var errNoLibrary = errors.New("no libtt_metal.so in it")

// findLibrary returns the path of the ELF file with tt_metal.
func findLibrary(sitePackages string) (string, error) {
	for _, name := range libraryNames {
		for _, dir := range []string{"ttnn/build/lib", "ttnn"} {
			p := filepath.Join(sitePackages, dir, name)
			if _, err := os.Stat(p); err == nil {
				return p, nil
			}
		}
	}
	return "", errNoLibrary
}

// Library returns the path of the ELF file with tt_metal in any release of ttnn, including
// those that do not run on the mock device. It downloads a wheel if the cache has neither
// the file nor the wheel, and keeps only the file. It prints nothing, and takes as long as
// a download of 100 MB.
func Library(ctx context.Context, version string) (string, error) {
	if _, err := parseRelease(version); err != nil {
		return "", err
	}
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	for _, py := range PythonVersions {
		if env, err := load(envDir(cache, version, py)); err == nil {
			return env.Library, nil
		}
	}
	dir := filepath.Join(cache, "lib", version)
	if p, ok := cachedLibrary(dir); ok {
		return p, nil
	}
	unlock, err := Lock(ctx, dir+".lock", func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	if p, ok := cachedLibrary(dir); ok { // another process made it meanwhile
		return p, nil
	}
	const tag = "cp310"
	wheel, kept := cachedWheel(filepath.Join(cache, "wheels"), "ttnn", version, tag)
	if !kept {
		tmp := dir + ".download"
		defer os.RemoveAll(tmp)
		if wheel, err = download(ctx, tmp, "ttnn", version, tag); err != nil {
			return "", err
		}
	}
	p, err := extractLibrary(wheel, dir)
	if err != nil {
		return "", fmt.Errorf("unpacking %s: %w", filepath.Base(wheel), err)
	}
	return p, nil
}

func cachedLibrary(dir string) (string, bool) {
	for _, name := range libraryNames {
		p := filepath.Join(dir, name)
		if _, err := os.Stat(p); err == nil {
			return p, true
		}
	}
	return "", false
}

// extractLibrary extracts the library from a wheel.
func extractLibrary(wheel, to string) (string, error) {
	z, err := zip.OpenReader(wheel)
	if err != nil {
		return "", err
	}
	defer z.Close()
	for _, name := range libraryNames {
		for _, f := range z.File {
			if path.Base(f.Name) == name {
				return extract(f, filepath.Join(to, name))
			}
		}
	}
	return "", errNoLibrary
}

// extract writes the file under another name first: the final name means that it is
// complete.
func extract(f *zip.File, to string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return "", err
	}
	r, err := f.Open()
	if err != nil {
		return "", err
	}
	defer r.Close()
	tmp := to + ".part"
	w, err := os.OpenFile(tmp, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o755)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(w, r)
	if err = errors.Join(err, w.Close()); err != nil {
		os.Remove(tmp)
		return "", err
	}
	return to, os.Rename(tmp, to)
}
