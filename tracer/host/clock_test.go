package host

import (
	"testing"

	"github.com/go-quicktest/qt"
)

func TestShiftOfATimeNamespace(t *testing.T) {
	qt.Check(t, qt.Equals(shiftOf("monotonic           0         0\nboottime            0         0\n"), 0))
	qt.Check(t, qt.Equals(shiftOf("monotonic       86400        17\nboottime            5         0\n"), 86400e9+17))
	qt.Check(t, qt.Equals(shiftOf("monotonic          -3 500000000\nboottime            5         0\n"), -25e8))
	qt.Check(t, qt.Equals(shiftOf(""), 0)) // a kernel without time namespaces
}
