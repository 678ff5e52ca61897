package main

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestCompareVersions(t *testing.T) {
	ascending := []string{
		"6.1.9-1", "6.1.176~rc1-1", "6.1.176-1~bpo11+1", "6.1.176-1", "6.1.176-1+b1", "6.1.176-2",
		"6.9.7-1", "6.12.90+deb12-1", "6.12.107-1", "7.0-1", "7.3~rc7-1~exp1", "7.3-1", "1:2.0-1",
	}
	for i, a := range ascending {
		for j, b := range ascending {
			qt.Check(t, qt.Equals(compareVersions(a, b) < 0, i < j), qt.Commentf("%s and %s", a, b))
			qt.Check(t, qt.Equals(compareVersions(a, b) == 0, i == j), qt.Commentf("%s and %s", a, b))
		}
	}
	qt.Check(t, qt.Equals(compareVersions("6.01-1", "6.1-1"), 0))
}

func TestChoose(t *testing.T) {
	var kernels []kernel
	for _, v := range []string{"6.12.9-1", "6.1.176-1", "6.12.107-1", "6.12.90-1~bpo12+1", "7.3~rc7-1~exp1", "7.2.13-1", "7.2.12-1"} {
		kernels = append(kernels, kernel{Version: v})
	}
	for wanted, version := range map[string]string{
		"6.1":  "6.1.176-1",
		"6.12": "6.12.107-1",
		"7.3":  "7.3~rc7-1~exp1", // nothing else is there
		newest: "7.2.13-1",
	} {
		k, found := choose(kernels, wanted)
		qt.Check(t, qt.IsTrue(found), qt.Commentf("%s", wanted))
		qt.Check(t, qt.Equals(k.Version, version), qt.Commentf("%s", wanted))
	}
	_, found := choose(kernels, "6.2")
	qt.Check(t, qt.IsFalse(found))
	qt.Check(t, qt.DeepEquals(allSeries(kernels), []string{"6.1", "6.12", "7.2", "7.3"}))

	kernels = append(kernels, kernel{Version: "7.3.1-1"})
	k, _ := choose(kernels, newest)
	qt.Check(t, qt.Equals(k.Version, "7.3.1-1"))
}
