package python

import (
	"encoding/binary"
	"errors"
	"fmt"

	"ttmem/symbolize"
)

// version is the version of an interpreter.
type version struct {
	minor int
	// early is set for an alpha or beta, whose structures are not final.
	early bool
	text  string // such as 3.13.0rc1
}

// findVersion reads the version from the constant Py_Version, which exists since 3.11. The release
// before that, and no older one, exports Py_Is: which patch it is does not matter.
func findVersion(e *symbolize.ELF) (version, error) {
	if s, ok := e.Lookup("Py_Version"); ok {
		b, err := e.Bytes(s.Addr, 4)
		if err != nil {
			return version{}, fmt.Errorf("reading Py_Version: %w", err)
		}
		return hexVersion(binary.LittleEndian.Uint32(b))
	}
	if _, ok := e.Lookup("Py_Is"); ok {
		return version{minor: 10, text: "3.10"}, nil
	}
	return version{}, errors.New("a CPython before 3.10: only 3.10 to 3.14 are supported")
}

// hexVersion parses PY_VERSION_HEX: bytes for major, minor, patch, and half bytes for
// alpha, beta, candidate or final and for its serial number.
func hexVersion(hex uint32) (version, error) {
	level, ok := map[uint32]string{0xa: "a", 0xb: "b", 0xc: "rc", 0xf: ""}[hex>>4&0xf]
	if hex>>24 != 3 || !ok {
		return version{}, fmt.Errorf("a Python of version %#x: unknown", hex)
	}
	v := version{minor: int(hex >> 16 & 0xff), early: level == "a" || level == "b"}
	v.text = fmt.Sprintf("3.%d.%d", v.minor, hex>>8&0xff)
	if level != "" {
		v.text += fmt.Sprint(level, hex&0xf)
	}
	return v, nil
}
