package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// kernel is a cloud kernel of Debian, the smallest kind.
type kernel struct {
	Version string   // of the package: 6.12.107-1
	Package string   // linux-image-6.12.107+deb13-cloud-amd64
	Needs   []string // further packages of this version with parts of it
}

// release is the release of a running kernel, which names the folder of its modules.
func (k kernel) release() string { return strings.TrimPrefix(k.Package, "linux-image-") }

// kernels has the downloaded kernels, and a mirror with more.
type kernels struct {
	dir     string
	archive *archive
	say     func(string, ...any)
	listed  []kernel // by the mirror
	fresh   bool     // downloaded in this run
}

// listAge bounds the age of the list of kernels.
const listAge = 24 * time.Hour

// kernelRecipe is a part of the name of a kernel's directory: it changes with the
// directory's layout.
const kernelRecipe = "1"

// find returns the kernel of a series, or the newest of all, and downloads it if needed.
// Without a network it returns a downloaded one.
func (ks *kernels) find(ctx context.Context, wanted string) (kernel, error) {
	if ks.listed == nil {
		list, age, err := ks.archive.kernels()
		ks.listed = list
		if err != nil || age > listAge {
			if err := ks.refresh(ctx); err != nil {
				if ctx.Err() != nil {
					return kernel{}, ctx.Err()
				}
				ks.say("cannot update the list of kernels: %v", err)
			}
		}
	}
	k, err := ks.get(ctx, wanted)
	if err != nil && !ks.fresh && ctx.Err() == nil { // a mirror drops old versions
		if ks.refresh(ctx) == nil {
			k, err = ks.get(ctx, wanted)
		}
	}
	if err == nil || ctx.Err() != nil {
		return k, err
	}
	if old, found := choose(ks.atHand(), wanted); found {
		ks.say("%v; using %s, which is downloaded", err, old.Version)
		return old, nil
	}
	return kernel{}, err
}

func (ks *kernels) refresh(ctx context.Context) error {
	ks.say("downloading the lists of Debian's kernels")
	if err := ks.archive.refresh(ctx); err != nil {
		return err
	}
	list, _, err := ks.archive.kernels()
	ks.listed, ks.fresh = list, true
	return err
}

func (ks *kernels) get(ctx context.Context, wanted string) (kernel, error) {
	atHand := ks.atHand()
	k, found := choose(append(atHand, ks.listed...), wanted)
	if !found {
		if len(ks.listed) == 0 {
			return kernel{}, errors.New("the list of Debian's kernels is missing: a network is needed")
		}
		return kernel{}, fmt.Errorf("no kernel %s on the mirror; available: %s", wanted, strings.Join(allSeries(ks.listed), ", "))
	}
	for _, h := range atHand {
		if h.Version == k.Version {
			return h, nil
		}
	}
	start := time.Now()
	ks.say("downloading kernel %s", k.Version)
	if err := ks.download(ctx, k); err != nil {
		return kernel{}, fmt.Errorf("downloading kernel %s: %w", k.Version, err)
	}
	ks.say("downloaded kernel %s in %.0f s", k.Version, time.Since(start).Seconds())
	for _, h := range atHand {
		if series(h.Version) == series(k.Version) {
			os.RemoveAll(ks.path(h, ""))
		}
	}
	return k, nil
}

// path is the path of a part of a downloaded kernel.
func (ks *kernels) path(k kernel, part string) string {
	return filepath.Join(ks.dir, k.Version+"-r"+kernelRecipe, part)
}

const kernelMarker = "kernel.json"

// atHand are the downloaded kernels.
func (ks *kernels) atHand() (list []kernel) {
	markers, _ := filepath.Glob(filepath.Join(ks.dir, "*-r"+kernelRecipe, kernelMarker)) // fails only on a bad pattern
	for _, path := range markers {
		var k kernel
		if text, err := os.ReadFile(path); err == nil && json.Unmarshal(text, &k) == nil {
			list = append(list, k)
		}
	}
	return list
}

// download downloads a kernel, and unpacks the modules that the guest loads first, in
// loading order.
func (ks *kernels) download(ctx context.Context, k kernel) (err error) {
	dir := ks.path(k, "")
	if err := os.RemoveAll(dir); err != nil { // of another recipe, or incomplete
		return err
	}
	tmp := strings.TrimSuffix(dir, "/") + ".download"
	if err := errors.Join(os.RemoveAll(tmp), os.MkdirAll(filepath.Join(tmp, "deb"), 0o755)); err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	if err := ks.archive.download(ctx, filepath.Join(tmp, "deb"), k); err != nil {
		return err
	}
	debs, _ := filepath.Glob(filepath.Join(tmp, "deb", "*.deb"))
	for _, deb := range debs {
		if _, err := output(ctx, "dpkg-deb", "-x", deb, filepath.Join(tmp, "root")); err != nil {
			return err
		}
	}
	if err := ks.pick(ctx, filepath.Join(tmp, "root"), tmp, k); err != nil {
		return err
	}
	marker, err := json.Marshal(k)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(tmp, kernelMarker), marker, 0o644),
		os.RemoveAll(filepath.Join(tmp, "deb")),
		os.RemoveAll(filepath.Join(tmp, "root")),
		os.Rename(tmp, dir))
}

// pick copies what the guest needs from unpacked packages.
func (ks *kernels) pick(ctx context.Context, root, to string, k kernel) error {
	if _, err := os.Stat(filepath.Join(root, "lib")); err != nil { // the newer place is usr/lib
		if err := os.Symlink("usr/lib", filepath.Join(root, "lib")); err != nil {
			return err
		}
	}
	modules := filepath.Join(root, "lib", "modules", k.release())
	image := filepath.Join(root, "boot", "vmlinuz-"+k.release())
	if _, err := os.Stat(image); err != nil { // from 6.19 on
		image = filepath.Join(modules, "vmlinuz")
	}
	if err := os.Rename(image, filepath.Join(to, "vmlinuz")); err != nil {
		return fmt.Errorf("the packages have no kernel: %w", err)
	}
	return unpackModules(ctx, root, modules, k.release(), filepath.Join(to, "modules"))
}
