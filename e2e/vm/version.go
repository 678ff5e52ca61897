package main

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// compareVersions compares two versions of Debian packages, [epoch:]upstream[-revision], by
// section 5.6.12 of the Debian policy.
func compareVersions(a, b string) int {
	epochA, upstreamA, revisionA := splitVersion(a)
	epochB, upstreamB, revisionB := splitVersion(b)
	return cmp.Or(comparePart(epochA, epochB), comparePart(upstreamA, upstreamB), comparePart(revisionA, revisionB))
}

func splitVersion(v string) (epoch, upstream, revision string) {
	epoch, rest, found := strings.Cut(v, ":")
	if !found {
		epoch, rest = "0", v
	}
	if i := strings.LastIndexByte(rest, '-'); i >= 0 {
		return epoch, rest[:i], rest[i+1:]
	}
	return epoch, rest, ""
}

// comparePart compares runs of digits by their value, and the text between them
// letter by letter.
func comparePart(a, b string) int {
	for a != "" || b != "" {
		var textA, textB, numberA, numberB string
		textA, a = cutRun(a, false)
		textB, b = cutRun(b, false)
		for i := range max(len(textA), len(textB)) {
			if c := cmp.Compare(letterOrder(textA, i), letterOrder(textB, i)); c != 0 {
				return c
			}
		}
		numberA, a = cutRun(a, true)
		numberB, b = cutRun(b, true)
		numberA, numberB = strings.TrimLeft(numberA, "0"), strings.TrimLeft(numberB, "0")
		if c := cmp.Or(cmp.Compare(len(numberA), len(numberB)), cmp.Compare(numberA, numberB)); c != 0 {
			return c
		}
	}
	return 0
}

// cutRun splits the leading digits, or non-digits, off s.
func cutRun(s string, digits bool) (run, rest string) {
	i := strings.IndexFunc(s, func(r rune) bool { return (r >= '0' && r <= '9') != digits })
	if i < 0 {
		return s, ""
	}
	return s[:i], s[i:]
}

// letterOrder is the rank of the letter at i: a tilde is before the end of the text,
// letters are before all others.
func letterOrder(s string, i int) int {
	switch {
	case i >= len(s):
		return 0
	case s[i] == '~':
		return -1
	case s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z':
		return int(s[i])
	}
	return int(s[i]) + 256
}

var seriesPrefix = regexp.MustCompile(`^\d+\.\d+`)

// series is the first two numbers of a version: 6.12 of 6.12.107-1.
func series(version string) string { return seriesPrefix.FindString(version) }

// releaseCandidate reports whether a version is no release yet, such as 7.3~rc7-1.
func releaseCandidate(version string) bool { return strings.Contains(version, "~rc") }

// newest stands for the newest series that has a release.
const newest = "newest"

// choose returns the newest kernel of a series, which may be newest. A release
// candidate is chosen only if its series has nothing else.
func choose(kernels []kernel, wanted string) (_ kernel, found bool) {
	var of []kernel
	for _, k := range kernels {
		if series(k.Version) == wanted || wanted == newest {
			of = append(of, k)
		}
	}
	if len(of) == 0 {
		return kernel{}, false
	}
	return slices.MaxFunc(of, func(a, b kernel) int {
		if x, y := releaseCandidate(a.Version), releaseCandidate(b.Version); x != y {
			if x {
				return -1
			}
			return 1
		}
		return compareVersions(a.Version, b.Version)
	}), true
}

// allSeries are the series of the kernels, the oldest first.
func allSeries(kernels []kernel) (list []string) {
	for _, k := range kernels {
		list = append(list, series(k.Version))
	}
	slices.SortFunc(list, compareVersions)
	return slices.Compact(list)
}
