package python

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"ttmem/symbolize"
)

// version is the version of an interpreter.
type version struct {
	minor, patch int
	// early is set for an alpha or beta, whose structures are not final; suffix is "rc1"
	// and the like.
	early  bool
	suffix string
}

func (v version) String() string { return fmt.Sprintf("3.%d.%d%s", v.minor, v.patch, v.suffix) }

// findVersion reads the version from the constant Py_Version, which exists since 3.11, or
// from the text that Py_GetVersion prints.
func findVersion(e *symbolize.ELF) (version, error) {
	if s, ok := e.Lookup("Py_Version"); ok {
		b, err := read(e, s.Addr, 4)
		if err != nil {
			return version{}, fmt.Errorf("reading Py_Version: %w", err)
		}
		return hexVersion(binary.LittleEndian.Uint32(b))
	}
	s, ok := e.Lookup("Py_GetVersion")
	if !ok {
		return version{}, errors.New("a Python of unknown version: neither Py_Version nor Py_GetVersion")
	}
	for _, r := range references(e, s) {
		b, err := e.Text(r.addr, 16)
		if err != nil {
			continue
		}
		if text, _, ok := bytes.Cut(b, []byte{0}); ok {
			if v, ok := parseVersion(string(text)); ok {
				return v, nil
			}
		}
	}
	return version{}, errors.New("a Python of unknown version: Py_GetVersion does not have it")
}

// hexVersion parses PY_VERSION_HEX: bytes for major, minor, patch, and half bytes for
// alpha, beta, candidate or final and for its serial number.
func hexVersion(hex uint32) (version, error) {
	if hex>>24 != 3 {
		return version{}, fmt.Errorf("a Python of version %#x: unknown", hex)
	}
	v := version{minor: int(hex >> 16 & 0xff), patch: int(hex >> 8 & 0xff)}
	level := map[uint32]string{0xa: "a", 0xb: "b", 0xc: "rc", 0xf: ""}
	name, ok := level[hex>>4&0xf]
	if !ok {
		return version{}, fmt.Errorf("a Python of version %#x: unknown", hex)
	}
	if name != "" {
		v.suffix = name + strconv.Itoa(int(hex&0xf))
		v.early = name != "rc"
	}
	return v, nil
}

// A "+" marks a build between two releases.
var versionText = regexp.MustCompile(`^3\.(\d{1,3})\.(\d{1,3})((?:(a|b|rc)\d{1,3})?\+?)$`)

func parseVersion(text string) (version, bool) {
	m := versionText.FindStringSubmatch(text)
	if m == nil {
		return version{}, false
	}
	minor, _ := strconv.Atoi(m[1]) // up to three digits
	patch, _ := strconv.Atoi(m[2])
	return version{minor, patch, m[4] == "a" || m[4] == "b", m[3]}, true
}
