package marks

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ttmem/symbolize"
)

// maxNear is how many names an error offers in the place of one that there is not.
const maxNear = 5

// maxDistance is by how many letters a name may differ from what was meant.
func maxDistance(name string) int { return min(3, max(1, len(name)/4)) }

// nearNames are the names of functions that are nearest to one, and how far they are
// from it.
type nearNames map[string]int

// look takes what is nearest to name in a file, too.
func (n nearNames) look(e *symbolize.ELF, name string) {
	name = asNative(name)
	want := lastIdentifier(name)
	if want == "" {
		return
	}
	eachCode(e, func(symbol string, _ uint64) {
		if !identifierNear(symbol, want) {
			return // without what naming it costs
		}
		short := symbolize.ShortName(symbol)
		if lastNear := distance(lastIdentifier(short), want); lastNear <= maxDistance(want) {
			n[strings.Clone(short)] = 4*lastNear + distance(short, name) // the file's names are not kept
		}
	})
	best := n.best()
	maps.DeleteFunc(n, func(short string, _ int) bool { return !slices.Contains(best, short) })
}

// best are the nearest ones, the nearest first.
func (n nearNames) best() []string {
	near := slices.SortedFunc(maps.Keys(n), func(a, b string) int { return cmp.Or(cmp.Compare(n[a], n[b]), cmp.Compare(a, b)) })
	return near[:min(len(near), maxNear)]
}

// unfound is the error that no function of that name is in so many files.
func (n nearNames) unfound(name string, files int) error {
	text := fmt.Sprintf("--mark-at %s: no native function of that name is in the %d files that are mapped", name, files)
	near := n.best()
	if len(near) > 0 {
		text += "; there is " + strings.Join(near, ", ")
	}
	if len(near) == 0 || asNative(name) != name {
		text += "; a function of Python has no address: take a native one that it calls, or `ttmem mark`"
	}
	return errors.New(text)
}

// asNative is how a name that is written as in Python is written in C++.
func asNative(name string) string {
	if strings.ContainsAny(name, ":(<") {
		return name
	}
	return strings.ReplaceAll(name, ".", "::")
}

// identifierNear reports whether an identifier of a mangled name is near another. In a
// mangled name each has its length in front of it; a name that is not mangled is one.
func identifierNear(symbol, want string) bool {
	if !strings.HasPrefix(symbol, "_Z") {
		return distance(symbol, want) <= maxDistance(want)
	}
	for i := 2; i < len(symbol); {
		n := 0
		for i < len(symbol) && '0' <= symbol[i] && symbol[i] <= '9' && n < len(symbol) {
			n = 10*n + int(symbol[i]-'0')
			i++
		}
		if n == 0 || i+n > len(symbol) {
			i++
			continue
		}
		if d := n - len(want); max(d, -d) <= maxDistance(want) && distance(symbol[i:i+n], want) <= maxDistance(want) {
			return true
		}
		i += n
	}
	return false
}

// farApart is a distance that nothing near has.
const farApart = 16

// distance is by how many letters two words differ, as Levenshtein counts; farApart where
// their lengths do by as many.
func distance(a, b string) int {
	if d := len(a) - len(b); d >= farApart || -d >= farApart {
		return farApart
	}
	var room [64]int // of most words: this is asked for each one of a library
	row := append(room[:0], make([]int, len(b)+1)...)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := left
			if a[i] != b[j] {
				replace++
			}
			left = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
