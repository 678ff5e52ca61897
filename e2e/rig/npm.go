package rig

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// NodePackage returns the folder of a version of a package of npm, which it downloads once.
func NodePackage(ctx context.Context, name, version string) (string, error) {
	cache, err := CacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "npm", name+"-"+version)
	unlock, err := Lock(ctx, dir+".lock", func() {})
	if err != nil {
		return "", err
	}
	defer unlock()
	found := filepath.Join(dir, "node_modules", name)
	if _, err := os.Stat(filepath.Join(dir, marker)); err == nil {
		return found, nil
	}
	if err := os.RemoveAll(dir); err != nil { // left by an interrupted download
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	if err := runLogged(ctx, dir+".log", "npm", "install", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", name+"@"+version); err != nil {
		return "", fmt.Errorf("installing %s: %w", name, err)
	}
	return found, writeFile(filepath.Join(dir, marker), []byte("{}\n"), 0o644)
}
