// The replay buffer of a Tensix core, as the headers of tt-metal's compiler offer it.
#pragma once

#include <cstdint>

extern volatile uint32_t __instrn_buffer[];

namespace lltt {
enum ExecBool : bool { NoExec, Exec };

constexpr uint32_t word(unsigned start, unsigned length, bool exec, bool load) {
    return 0x04000000 + (start << 14) + (length << 4) + (exec << 1) + load;
}

[[gnu::always_inline]] inline void issue(uint32_t word) {
    if (__builtin_constant_p(word)) {
        __asm__ __volatile__(".ttinsn %0" ::"i"(word));
    } else {
        __instrn_buffer[0] = word;
    }
}

template <ExecBool exec = NoExec>
[[gnu::always_inline]] inline void record(unsigned start, unsigned length) {
    issue(word(start, length, exec, true));
}

[[gnu::always_inline]] inline void replay(unsigned start, unsigned length) {
    issue(word(start, length, false, false));
}

constexpr uint32_t replay_insn(unsigned start, unsigned length) { return word(start, length, false, false); }
}  // namespace lltt
