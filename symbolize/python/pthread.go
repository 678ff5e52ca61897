package python

import (
	"encoding/binary"
	"fmt"

	"ttmem/symbolize"
)

// Pthread is how a C library keeps the values of pthread keys: that of key k, of
// the thread whose descriptor is at fs (FS base, pthread_t), is the u64 at
//
//	block + k%Level2Size*KeySize + KeyData, block = *(fs + Specific + 8*(k/Level2Size))
//
// All but Level2Size, a number of keys, are in bytes.
type Pthread struct {
	Specific, Level2Size, KeyData, KeySize uint32
}

// Threads reads how a C library keeps the values of pthread keys from what glibc
// tells debuggers about itself: the symbols _thread_db_* (nptl_db/db_info.c). It
// is an error if the library has none, as musl.
func Threads(libc *symbolize.ELF) (Pthread, error) {
	var p Pthread
	for _, f := range []struct {
		symbol string
		words  int // that the symbol has
		word   int // that is wanted
		to     *uint32
		atMost uint32
	}{
		// of each field the size in bits, how many there are, and the offset
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
		b, err := read(libc, s.Addr, f.words*4)
		if err != nil {
			return Pthread{}, fmt.Errorf("reading %s: %w", f.symbol, err)
		}
		if *f.to = binary.LittleEndian.Uint32(b[f.word*4:]); *f.to > f.atMost {
			return Pthread{}, fmt.Errorf("%s is %d: cannot be", f.symbol, *f.to)
		}
	}
	if p.Level2Size == 0 || p.KeyData+8 > p.KeySize {
		return Pthread{}, fmt.Errorf("values of keys at %d of %d bytes, in blocks of %d: cannot be", p.KeyData, p.KeySize, p.Level2Size)
	}
	return p, nil
}
