// reuse CALLS: two threads come to probed by ways that a die picks anew for each
// call: other call sites of the same functions, other depths, frames that move with
// alloca while stale return addresses stay where they lay, frames found by rbp and
// by rsp. Nothing changes between calls that does not have to.
#include <alloca.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shadow.h"

static __thread unsigned long die;

static unsigned roll(unsigned n)
{
	die = die * 6364136223846793005ul + 1442695040888963407ul;
	return (die >> 33) % n;
}

static int way(int n);

// The same function, called from two places: they differ in the return address.
FUNCTION int two_sites(int n)
{
	CALL(two_sites);
	if (roll(2)) {
		shadow_push("site1");
		int r = way(n - 1);
		shadow_pop();
		return r + 1;
	}
	shadow_push("site2");
	int r = way(n - 1);
	shadow_pop();
	return r + 2;
}

// Moves all frames below by some multiple of 16: what those before left there
// stays.
FUNCTION int moving(int n)
{
	CALL(moving);
	volatile char *room = (volatile char *)alloca(16 + 16 * roll(8));
	ESCAPE(room);
	return way(n - 1) + 1;
}

FUNCTION int fixed(int n)
{
	CALL(fixed);
	volatile long room[5];
	ESCAPE(room);
	return way(n - 1) + 1;
}

// Hands another value on in the registers that it saves: rbp is a number here.
FUNCTION int with_registers(int n)
{
	CALL(with_registers);
	unsigned long a = roll(9), b = roll(9), c = roll(9), d = roll(9), e = roll(9), f = roll(9), g = roll(9);
	int r = way(n - 1);
	__asm__ volatile("" ::"r"(a), "r"(b), "r"(c), "r"(d), "r"(e), "r"(f), "r"(g));
	return r + 1;
}

// Fills the stack below with addresses inside these functions.
FUNCTION void litter(void)
{
	volatile void *stale[64];
	void *places[] = {(void *)two_sites, (void *)moving, (void *)fixed, (void *)with_registers};

	for (int i = 0; i < 64; i++)
		stale[i] = (char *)places[roll(4)] + roll(60);
	ESCAPE(stale);
}

static int way(int n)
{
	if (n <= 0) {
		probed("call");
		return 0;
	}
	switch (roll(4)) {
	case 0:
		return two_sites(n);
	case 1:
		return moving(n);
	case 2:
		return fixed(n);
	}
	return with_registers(n);
}

static int calls;

FUNCTION void *thread(void *seed)
{
	CALL(thread);
	die = (unsigned long)seed;
	for (int i = 0; i < calls / 2;) {
		if (roll(4) == 0)
			litter();
		// the same way several times, as a loop takes it
		unsigned long start = die;
		int n = 1 + roll(9);
		for (unsigned times = 1 + roll(3); times && i < calls / 2; times--, i++) {
			unsigned long next = die;
			if (times > 1)
				die = start;
			way(n);
			if (times > 1)
				die = next;
		}
	}
	return 0;
}

int main(int, char **argv)
{
	pthread_t t[2];

	calls = atoi(argv[1]);
	puts("ready");
	fflush(stdout);
	getchar();
	for (long i = 0; i < 2; i++)
		pthread_create(&t[i], 0, thread, (void *)(i + 7));
	for (long i = 0; i < 2; i++)
		pthread_join(t[i], 0);
	return 0;
}
