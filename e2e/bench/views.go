package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// views measures how fast pages of large recordings and the live view react, and what a killed recorder
// has not written, with benchmarks of the packages that have them. The goals of pages are of processor
// time.
func (b *bench) views() error {
	for _, v := range []struct {
		of, benchmark string
		goals         map[string]float64
	}{
		{"./cmd/ttmem/internal/web", "BenchmarkLargePages", map[string]float64{"open-ms": 2000, "selection-ms": 200}},
		{"./cmd/ttmem/internal/web", "BenchmarkManyCallSites", map[string]float64{"open-ms": 10000, "step-ms": 10000}},
		{"./e2e", "BenchmarkTopBusyHost", map[string]float64{"key-ms": 2000}},
		{"./e2e", "BenchmarkKilledRecorder", map[string]float64{"unwritten-ms": 1000}},
	} {
		progress("%s", v.benchmark)
		cmd := exec.Command("go", "test", "-run", "^$", "-bench", "^"+v.benchmark+"$", "-benchtime", "1x", v.of)
		cmd.Dir = b.module
		cmd.Env = append(os.Environ(), "TTMEM_BINARY="+b.ttmem)
		out, err := cmd.CombinedOutput()
		progress("")
		if err != nil {
			return fmt.Errorf("%s: %w: %s", v.benchmark, err, out)
		}
		found := 0
		for line := range bytes.Lines(out) {
			f := strings.Fields(string(line))
			if len(f) == 0 || !strings.HasPrefix(f[0], v.benchmark) {
				continue
			}
			for i := 2; i+1 < len(f); i += 2 { // name, runs, then values with units
				value, err := strconv.ParseFloat(f[i], 64)
				goal, known := v.goals[f[i+1]]
				if err != nil || !known {
					continue
				}
				b.atMost(strings.TrimPrefix(f[0], "Benchmark")+" "+strings.TrimSuffix(f[i+1], "-ms"), value, "ms", goal)
				found++
			}
		}
		if found == 0 {
			return errors.New(v.benchmark + " printed no figures: " + string(out))
		}
	}
	return nil
}
