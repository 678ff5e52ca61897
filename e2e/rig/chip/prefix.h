// Included before every source.
#ifdef __cplusplus
#define uint picolibc_uint  // picolibc's is another type than tt-metal's
#include <sys/types.h>
#undef uint
#define static_assert(...)  // some are for a newer C++
#endif

// An instruction of the Tensix unit is a word of the program, rotated left by two.
asm(".macro .ttinsn x\n.word ((\\x << 2) | ((\\x >> 30) & 3)) & 0xffffffff\n.endm");
