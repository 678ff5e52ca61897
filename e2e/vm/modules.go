package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// wantedModules are the modules that the guest needs to mount its root, unless they are
// built in. ext4 does not list crc32c_generic among its dependencies.
var wantedModules = []struct {
	name     string
	optional bool
}{
	{"virtio_pci", false}, {"virtio_blk", false}, {"crc32c_generic", true}, {"ext4", false},
}

// unpackModules writes these modules and their dependencies, uncompressed, with names in
// loading order.
func unpackModules(ctx context.Context, root, modules, release, to string) error {
	if _, err := output(ctx, "depmod", "-b", root, release); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(modules, "modules.dep"))
	if err != nil {
		return err
	}
	// Newer kernels list their built-in modules in a package that is not needed otherwise.
	builtin, err := os.ReadFile(filepath.Join(modules, "modules.builtin"))
	unknown := errors.Is(err, fs.ErrNotExist)
	if err != nil && !unknown {
		return err
	}
	needs := parseNeeds(string(text))
	var names []string
	for _, m := range wantedModules {
		switch {
		case find(needs, m.name) != "":
			names = append(names, m.name)
		case !m.optional && !unknown && !strings.Contains(string(builtin), "/"+m.name+".ko"):
			return fmt.Errorf("the kernel has no module %s", m.name)
		}
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for i, path := range loadOrder(needs, names) {
		text, err := decompress(ctx, filepath.Join(modules, path))
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%02d-%s.ko", i, moduleName(path))
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// parseNeeds parses modules.dep: a module's path, a colon, and its dependencies.
func parseNeeds(text string) map[string][]string {
	needs := make(map[string][]string)
	for line := range strings.Lines(text) {
		if path, rest, found := strings.Cut(line, ":"); found {
			needs[path] = strings.Fields(rest)
		}
	}
	return needs
}

// loadOrder returns the paths of modules and all dependencies, each after its own
// dependencies.
func loadOrder(needs map[string][]string, names []string) (order []string) {
	done := make(map[string]bool)
	var add func(path string)
	add = func(path string) {
		if done[path] {
			return
		}
		done[path] = true
		for _, p := range needs[path] {
			add(p)
		}
		order = append(order, path)
	}
	for _, name := range names {
		add(find(needs, name))
	}
	return order
}

// find returns the path of a module, or "".
func find(needs map[string][]string, name string) string {
	for path := range needs {
		if moduleName(path) == name {
			return path
		}
	}
	return ""
}

// moduleName is the name of the module in a file. In file names a dash and an underscore
// are equivalent.
func moduleName(path string) string {
	name, _, _ := strings.Cut(filepath.Base(path), ".ko")
	return strings.ReplaceAll(name, "-", "_")
}

func decompress(ctx context.Context, path string) ([]byte, error) {
	tool := map[string]string{".xz": "xz", ".zst": "zstd"}[filepath.Ext(path)]
	if tool == "" {
		return os.ReadFile(path)
	}
	text, err := output(ctx, tool, "-dc", path)
	return []byte(text), err
}
