package symbolize

import "strings"

// Marks of names that the demangler would take too long for. The names of ttnn
// have at most 3 of the first, and 5 of the second in a row.
const (
	maxCasts = 10
	maxLocal = 64
)

// manageable reports whether demangling a symbol takes little time, 30 ms at
// most. The demangler reads the template arguments behind a conversion operator
// (`cv`) twice, and so those within them four times; and for functions within
// functions (`Z`) it takes time that grows with the square of their number.
func manageable(symbol string) bool {
	return len(symbol) <= maxMangled && strings.Count(symbol, "cv") <= maxCasts &&
		!strings.Contains(symbol, strings.Repeat("Z", maxLocal))
}
