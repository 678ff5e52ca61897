package host

import (
	"debug/elf"
	"os/signal"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ignoredAtStart are the signals that this process was started to ignore, such as by nohup
// or by a shell's trap: bit 0 is signal 1, as in /proc/PID/status. Go's runtime handles them
// all the same and does not say so, but it keeps what each did before in a variable. Without
// a symbol table it cannot be found, and no signal counts as ignored.
func ignoredAtStart() (signals uint64) {
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		return 0
	}
	defer self.Close()
	const ignored = 1 // SIG_IGN
	symbols, err := self.Symbols()
	if err != nil || self.Type != elf.ET_EXEC {
		return 0
	}
	for i := range symbols {
		v := &symbols[i]
		if v.Name != "runtime.fwdSig" || elf.ST_TYPE(v.Info) != elf.STT_OBJECT || v.Size != 8*65 {
			continue
		}
		at := uintptr(v.Value)
		before := *(**[65]uintptr)(unsafe.Pointer(&at))
		for s := 1; s <= 64; s++ {
			if before[s] == ignored {
				signals |= 1 << (s - 1)
			}
		}
	}
	return signals
}

// ignoreSignals ignores signals in the program that this process executes next.
func ignoreSignals(signals uint64) {
	for s := 1; s <= 64; s++ {
		if signals&(1<<(s-1)) != 0 {
			signal.Ignore(unix.Signal(s))
		}
	}
}
