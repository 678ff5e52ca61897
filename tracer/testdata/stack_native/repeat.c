// Calls probed as often as it is told, line by line: "call N"; "secret N" on a stack that the
// kernel itself cannot read; "spread N" by ways that it did not take before; "apart N" twice by each such way, after
// which its stack gets other pages; "devices N" calls device with N devices. Each line is answered by the sum of what
// the calls return.
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#define NOINLINE __attribute__((noinline, noclone))

/* It begins with a nop, at which a probe costs little. */
__attribute__((patchable_function_entry(1))) NOINLINE long probed(long n)
{
	__asm__ volatile("" : "+r"(n));
	return n + 1;
}

/* The arguments are those of the library's functions that get a program and a device. */
__attribute__((patchable_function_entry(1))) NOINLINE long device(long *program, long *device)
{
	__asm__ volatile("" : : "r"(program), "r"(device));
	return 1;
}

static long calls, sum;

NOINLINE void repeat(void)
{
	sum = 0;
	for (long i = 0; i < calls; i++)
		sum += probed(i);
}

NOINLINE void caller(void)
{
	repeat();
	__asm__ volatile("");
}

/* Each bit of way is one of two calls. */
NOINLINE long spread(long n, unsigned long way, int bits)
{
	long sum;

	if (!bits)
		return probed(n);
	if (way & 1) {
		sum = spread(n, way >> 1, bits - 1);
		__asm__ volatile("nop" : "+r"(sum));
	} else {
		sum = spread(n, way >> 1, bits - 1);
		__asm__ volatile("nop; nop" : "+r"(sum));
	}
	return sum;
}

static unsigned long way;

static volatile long asked, answered;
static pid_t children[100];

/* Makes as many children as it is asked for. Each keeps the present pages of the main thread's stack. */
static void *make_children(void *number)
{
	while (answered < (long)number) {
		if (answered == asked) {
			sched_yield();
			continue;
		}
		children[answered] = fork();
		if (!children[answered]) {
			pause();
			_exit(0);
		}
		answered++;
	}
	return 0;
}

NOINLINE void apart(void)
{
	long n = calls < 100 ? calls : 100;
	pthread_t other;

	sum = asked = answered = 0;
	pthread_create(&other, 0, make_children, (void *)n);
	for (long i = 0; i < n; i++, way++) {
		for (volatile int twice = 0; twice < 2; twice++) /* one call: volatile */
			sum += spread(i, way, 20);
		for (asked++; answered < asked;)
			; /* writes nothing to the stack */
	}
	pthread_join(other, 0);
	for (long i = 0; i < n; i++) {
		kill(children[i], SIGKILL);
		waitpid(children[i], 0, 0);
	}
}

NOINLINE void spread_all(void)
{
	sum = 0;
	for (long i = 0; i < calls; i++)
		sum += spread(i, way++, 20);
}

NOINLINE void devices(void)
{
	static long program, all[100];

	sum = 0;
	for (long i = 0; i < calls && i < 100; i++)
		sum += device(&program, &all[i]);
}

#define STACK (1 << 18)

static int on_secret_stack(void)
{
	static char *stack;
	static ucontext_t here, there;

	if (!stack) {
		int fd = syscall(SYS_memfd_secret, 0);

		if (fd < 0 || ftruncate(fd, STACK))
			return 0;
		stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (stack == MAP_FAILED)
			return 0;
	}
	getcontext(&there);
	there.uc_stack.ss_sp = stack;
	there.uc_stack.ss_size = STACK;
	there.uc_link = &here;
	makecontext(&there, caller, 0);
	return !swapcontext(&here, &there);
}

int main(void)
{
	char word[16];

	puts("ready");
	fflush(stdout);
	while (scanf("%15s %ld", word, &calls) == 2) {
		if (!strcmp(word, "call"))
			caller();
		else if (!strcmp(word, "spread"))
			spread_all();
		else if (!strcmp(word, "apart"))
			apart();
		else if (!strcmp(word, "devices"))
			devices();
		else if (!on_secret_stack())
			sum = -1;
		printf("%ld\n", sum);
		fflush(stdout);
	}
	return 0;
}
