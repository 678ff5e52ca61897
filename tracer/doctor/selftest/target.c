// SPDX-License-Identifier: Apache-2.0
/* The program that `ttmem doctor` traces to see whether tracing works. For each byte that
 * it reads it calls a probed function through some others, and writes the byte back. It
 * needs no library, and is built like tt-metal: with unwind rows and without frame
 * pointers. */

#define SYS_READ 0
#define SYS_WRITE 1
#define SYS_EXIT 60

#define FUNCTION __attribute__((noinline))
/* Code after the call, so that it does not become a jump. */
#define RETURN_HERE() __asm__ volatile("" ::: "memory")

static long kernel(long number, long a, const void *b, long c)
{
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(number), "D"(a), "S"(b), "d"(c)
			 : "rcx", "r11", "memory");
	return result;
}

/* Takes the place of GraphTracker::track_allocate(Buffer *): in the doctor's layout the
 * fields of a Buffer are the zeros that it points to. */
FUNCTION void probed(void *tracker, const unsigned char *buffer)
{
	__asm__ volatile("" ::"r"(tracker), "r"(buffer) : "memory");
}

FUNCTION void inner(void)
{
	unsigned char buffer[256] = {0}; /* larger than what is read of a Buffer */

	probed(0, buffer);
	RETURN_HERE();
}

FUNCTION void middle(int depth)
{
	volatile int room[37];

	room[depth] = depth;
	if (depth)
		middle(depth - 1);
	else
		inner();
	RETURN_HERE();
}

FUNCTION void outer(void)
{
	middle(2);
	RETURN_HERE();
}

FUNCTION void run(void)
{
	char byte;

	while (kernel(SYS_READ, 0, &byte, 1) == 1) {
		outer();
		kernel(SYS_WRITE, 1, &byte, 1);
	}
	kernel(SYS_EXIT, 0, 0, 0);
}

/* The unwinder ends where the return address is undefined. */
__asm__(".globl _start\n"
	".type _start, @function\n"
	"_start:\n"
	".cfi_startproc\n"
	".cfi_undefined rip\n"
	"xor %ebp, %ebp\n"
	"and $-16, %rsp\n"
	"call run\n"
	"hlt\n"
	".cfi_endproc\n"
	".size _start, . - _start\n");
