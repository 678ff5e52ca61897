package python

import (
	"encoding/binary"
	"fmt"

	"ttmem/symbolize"
)

// Pthread describes where a C library stores the values of pthread keys. The value of key
// k, for the thread whose descriptor is at fs (FS base, pthread_t), is the u64 at
//
//	block + k%Level2Size*KeySize + KeyData, block = *(fs + Specific + 8*(k/Level2Size))
//
// All but Level2Size, a number of keys, are in bytes.
type Pthread struct {
	Specific, Level2Size, KeyData, KeySize uint32
}

// Threads reads this from the description that glibc has for debuggers: the symbols
// _thread_db_* (nptl_db/db_info.c). It returns an error for a library without them, such as
// musl.
func Threads(libc *symbolize.ELF) (Pthread, error) {
	var p Pthread
	for _, f := range []struct {
		symbol string
		words  int // in the symbol
		word   int // to read
		to     *uint32
		atMost uint32
	}{
		// for each field: size in bits, number of elements, offset
		{"_thread_db_pthread_specific", 3, 2, &p.Specific, 1 << 16},
		{"_thread_db_pthread_key_data_level2_data", 3, 1, &p.Level2Size, 1 << 16},
		{"_thread_db_pthread_key_data_data", 3, 2, &p.KeyData, 1 << 8},
		{"_thread_db_sizeof_pthread_key_data", 1, 0, &p.KeySize, 1 << 8},
	} {
		s, ok := libc.Lookup(f.symbol)
		if !ok {
			return Pthread{}, fmt.Errorf("a C library without %s: thread states can only be found in glibc", f.symbol)
		}
		if s.Size != uint64(f.words)*4 {
			return Pthread{}, fmt.Errorf("%s is of %d bytes, not %d", f.symbol, s.Size, f.words*4)
		}
		b, err := libc.Bytes(s.Addr, f.words*4)
		if err != nil {
			return Pthread{}, fmt.Errorf("reading %s: %w", f.symbol, err)
		}
		if *f.to = binary.LittleEndian.Uint32(b[f.word*4:]); *f.to > f.atMost {
			return Pthread{}, fmt.Errorf("%s is %d: impossible", f.symbol, *f.to)
		}
	}
	if p.Level2Size == 0 || p.KeyData+8 > p.KeySize {
		return Pthread{}, fmt.Errorf("values of keys at %d of %d bytes, in blocks of %d: impossible", p.KeyData, p.KeySize, p.Level2Size)
	}
	return p, nil
}
