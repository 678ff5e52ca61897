package flags

import (
	"errors"
	"strconv"
	"strings"

	"ttmem/cmd/ttmem/internal/page"
)

// Size is a flag of bytes, with or without a unit.
type Size int64

var byteUnits = []struct {
	name  string
	bytes float64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12},
	{"K", 1 << 10}, {"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}, {"B", 1},
}

func (b *Size) Set(text string) error {
	number, unit := strings.TrimSpace(text), 1.0
	for _, u := range byteUnits {
		if n, ok := strings.CutSuffix(strings.ToLower(number), strings.ToLower(u.name)); ok {
			number, unit = strings.TrimSpace(n), u.bytes
			break
		}
	}
	v, err := strconv.ParseFloat(number, 64)
	if err != nil || !(v >= 0 && v*unit < 1<<60) {
		return errors.New("not a size: give one such as 64KiB, 500MiB or 2GiB")
	}
	*b = Size(v * unit)
	return nil
}

func (b *Size) String() string {
	if *b == 0 {
		return ""
	}
	return page.Bytes(uint64(*b))
}

func (b *Size) Type() string { return "size" }
