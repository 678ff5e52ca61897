/* Jumps to probed instructions with made-up registers and a made-up stack, and comes back by
 * the fault that follows. Loaded by probes.py. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <unistd.h>

static __thread sigjmp_buf back;

static void on_signal(int n)
{
	(void)n;
	siglongjmp(back, 1);
}

/* To be called by each thread. */
int setup(void)
{
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_ONSTACK | SA_NODEFER};
	stack_t s = {.ss_size = 1 << 16};
	int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGALRM, SIGSYS};

	s.ss_sp = malloc(s.ss_size);
	sigaltstack(&s, NULL);
	for (unsigned i = 0; i < sizeof(signals) / sizeof(*signals); i++)
		sigaction(signals[i], &a, NULL);
	return 0;
}

/* Registers: rdi, rsi, rdx, rcx, r8, r9, rbx, rbp, r12 to r15. */
__attribute__((noinline)) void hit(void *at, const uint64_t *registers, void *stack)
{
	struct itimerval stop = {.it_value = {.tv_usec = 20000}}, none = {};

	if (sigsetjmp(back, 0)) {
		setitimer(ITIMER_REAL, &none, NULL);
		return;
	}
	setitimer(ITIMER_REAL, &stop, NULL); /* it may run for ever */
	asm volatile("mov %0, %%r11\n mov %1, %%rax\n mov %2, %%rsp\n"
		     "mov (%%rax), %%rdi\n mov 8(%%rax), %%rsi\n mov 16(%%rax), %%rdx\n"
		     "mov 24(%%rax), %%rcx\n mov 32(%%rax), %%r8\n mov 40(%%rax), %%r9\n"
		     "mov 48(%%rax), %%rbx\n mov 64(%%rax), %%r12\n mov 72(%%rax), %%r13\n"
		     "mov 80(%%rax), %%r14\n mov 88(%%rax), %%r15\n mov 56(%%rax), %%rbp\n"
		     "jmp *%%r11"
		     :
		     : "r"(at), "r"(registers), "r"(stack)
		     : "memory");
}

struct call {
	void *at;
	const uint64_t *registers;
	void *stack;
};

static int stays(void *data)
{
	const struct call *c = data;

	for (;;) {
		hit(c->at, c->registers, c->stack);
		usleep(1000);
	}
	return 0;
}

/* Hits from a child of vfork that never ends. */
int stay(void *at, const uint64_t *registers, void *stack)
{
	struct call c = {at, registers, stack};
	char *own = malloc(1 << 16);

	setup();
	return clone(stays, own + (1 << 16), CLONE_VM | CLONE_VFORK | SIGCHLD, &c);
}

static void *joins(void *data)
{
	const struct call *c = data;

	setup();
	hit(c->at, c->registers, (char *)aligned_alloc(16, 4096) + 4088);
	pause();
	return NULL;
}

/* Hits once from each of many threads, which stay. */
int crowd(void *at, const uint64_t *registers, long count)
{
	static struct call c;
	pthread_attr_t small;
	pthread_t t;

	c = (struct call){at, registers, NULL};
	pthread_attr_init(&small);
	pthread_attr_setstacksize(&small, 1 << 16);
	for (long i = 0; i < count; i++)
		if (pthread_create(&t, &small, joins, &c))
			return i;
	return count;
}

/* Hits again and again. After each hit, words of memory grow by a step: identifiers, say. With
 * random, the stack is filled with return addresses into code of size bytes. */
void flood(void *at, uint64_t *registers, uint64_t *stack, long times, long words, uint64_t **word,
	   const uint64_t *step, uint64_t code, uint64_t size, long depth)
{
	uint64_t x = 88172645463325252ull;

	for (volatile long i = 0; i < times; i++) {
		for (long k = 0; k < depth; k++) {
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
			stack[k] = code + x % size;
		}
		hit(at, registers, stack);
		for (long k = 0; k < words; k++)
			*word[k] += step[k];
	}
}
