package rig

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// Each part is where SetUpAll looks for it, and nothing is said of parts that are there.
func TestParts(t *testing.T) {
	cache, err := CacheDir()
	qt.Assert(t, qt.IsNil(err))
	for _, p := range parts(cache) {
		qt.Assert(t, qt.IsNil(p.make(t.Context(), testWriter{t})), qt.Commentf("%s", p.name))
		_, err := os.Stat(filepath.Join(cache, p.path))
		qt.Check(t, qt.IsNil(err), qt.Commentf("%s", p.name))
	}
	var said strings.Builder
	qt.Assert(t, qt.IsNil(SetUpAll(t.Context(), false, &said)))
	qt.Check(t, qt.Equals(said.String(), ""))
}

// A download that fails is named, and tried again.
func TestRetried(t *testing.T) {
	defer func(old []time.Duration) { pauses = old }(pauses)
	pauses = []time.Duration{0, 0}
	for failures, want := range map[int]string{0: "", 2: "", 3: "downloading d3: no route to host"} {
		var said strings.Builder
		tries := 0
		err := retried(t.Context(), progress(&said), "downloading d3", func() error {
			if tries++; tries <= failures {
				return errors.New("no route to host")
			}
			return nil
		})
		if want == "" {
			qt.Check(t, qt.IsNil(err))
		} else {
			qt.Check(t, qt.ErrorMatches(err, want))
		}
		qt.Check(t, qt.Equals(tries, min(failures+1, 3)))
		qt.Check(t, qt.Equals(strings.Count(said.String(), "downloading d3: no route to host; trying again in 0s ("), min(failures, 2)))
	}

	ctx, stop := context.WithCancel(t.Context())
	stop()
	pauses = []time.Duration{time.Hour}
	err := retried(ctx, progress(nil), "downloading d3", func() error { return errors.New("no route to host") })
	qt.Check(t, qt.IsNotNil(err))
}
