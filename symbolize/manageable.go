package symbolize

import "strings"

// Patterns in names that would take the demangler too long. The names of ttnn have at most
// 3 of the first, and 5 of the second in a row.
const (
	maxCasts = 10
	maxLocal = 64
)

// manageable reports whether demangling a symbol takes little time, 30 ms at most. The
// demangler reads the template arguments behind a conversion operator (`cv`) twice, and
// nested ones four times; for nested functions (`Z`) its time grows with the square of
// their number.
func manageable(symbol string) bool {
	return len(symbol) <= maxMangled && strings.Count(symbol, "cv") <= maxCasts &&
		!strings.Contains(symbol, strings.Repeat("Z", maxLocal))
}
