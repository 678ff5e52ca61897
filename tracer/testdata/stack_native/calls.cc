// Ways to come to a function. Built with frame pointers, without them, and
// without unwind rows.
#include "shadow.h"

#include <functional>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

FUNCTION int leaf(const char *what)
{
	CALL(leaf);
	probed(what);
	return 1;
}

FUNCTION int recurse(int n, const char *what)
{
	CALL(recurse);
	return n > 1 ? recurse(n - 1, what) + 1 : leaf(what);
}

FUNCTION int large_frame(int n)
{
	CALL(large_frame);
	volatile char room[70000];
	room[n] = 1;
	return leaf("frame of more than 64 KiB") + room[n];
}

FUNCTION int moving_frame(int bytes)
{
	CALL(moving_frame);
	volatile char *room = (volatile char *)__builtin_alloca(bytes);
	ESCAPE(room);
	return leaf("alloca") + recurse(3, "alloca") + room[bytes - 1] * 0;
}

FUNCTION int aligned_frame(int n)
{
	CALL(aligned_frame);
	alignas(64) volatile char room[200];
	ESCAPE(room);
	return leaf("aligned to 64") + recurse(n, "aligned to 64");
}

FUNCTION int page_aligned_frame(int n)
{
	CALL(page_aligned_frame);
	alignas(4096) volatile char room[5000];
	ESCAPE(room);
	return leaf("aligned to 4096") + aligned_frame(n);
}

// Seven and more arguments: the frame is found by way of where they lie.
FUNCTION int aligned_moving_frame(int a, int b, int c, int d, int e, int f, int g, int bytes)
{
	CALL(aligned_moving_frame);
	alignas(128) volatile char room[100];
	volatile char *more = (volatile char *)__builtin_alloca(bytes);
	ESCAPE(room);
	ESCAPE(more);
	return leaf("aligned, with alloca") + page_aligned_frame(2) + a + b + c + d + e + f + g;
}

struct shape {
	virtual ~shape() {}
	virtual int area(int n) = 0;
};
struct square : shape {
	NOINLINE int area(int n) override
	{
		CALL_AS("_ZN6square4areaEi");
		return recurse(n, "virtual call");
	}
};
struct disc : shape {
	square inner;
	NOINLINE int area(int n) override
	{
		CALL_AS("_ZN4disc4areaEi");
		shape *s = &inner;
		ESCAPE(&s);
		return s->area(n) + 1;
	}
};

FUNCTION int areas(int n)
{
	CALL(areas);
	disc d;
	shape *s = &d;
	ESCAPE(&s);
	return s->area(n);
}

FUNCTION int called_by_function(int n)
{
	CALL(called_by_function);
	return recurse(n, "std::function");
}

FUNCTION int calls_function(int n)
{
	CALL(calls_function);
	std::function<int(int)> f = called_by_function;
	ESCAPE(&f);
	return f(n) + 1;
}

// A tail call leaves no frame: none of these says that it is entered.
FUNCTION int tail_called(int n)
{
	CALL(tail_called);
	return leaf("tail call") + n;
}
FUNCTION int tail_calling(int n) { return tail_called(n + 1); }
FUNCTION int tail_calling_twice(int n) { return tail_calling(n * 2); }
FUNCTION int before_tail_calls(int n)
{
	CALL(before_tail_calls);
	return tail_calling_twice(n) + 1;
}

FUNCTION int compare(const void *a, const void *b)
{
	CALL(compare);
	probed("qsort");
	return *(const int *)a - *(const int *)b;
}

FUNCTION int sorting(int n)
{
	CALL(sorting);
	int v[] = {5, n, 3, 9, 1, 4}, key = 4;
	qsort(v, 6, sizeof(v[0]), compare);
	return bsearch(&key, v, 6, sizeof(v[0]), compare) != 0;
}

static sigjmp_buf out;

FUNCTION void on_signal(int)
{
	CALL(on_signal);
	recurse(2, "signal");
}
FUNCTION void on_fault(int)
{
	{
		CALL(on_fault);
		recurse(2, "fault");
	}
	siglongjmp(out, 1);
}

FUNCTION int raising(int signal)
{
	CALL(raising);
	return raise(signal) + 1;
}

// Its first instruction faults where no frame pointer is set up before; without
// rows nothing but that can tell of its caller.
FUNCTION int fault(volatile int *at)
{
#ifndef __cpp_exceptions
	ESCAPE(__builtin_frame_address(0));
#endif
	return *at;
}

FUNCTION int faulting(int n)
{
	CALL(faulting);
	int depth = shadow_depth();
	if (!sigsetjmp(out, 1)) {
		shadow_push("fault@" MODULE);
		return fault((volatile int *)(long)n);
	}
	shadow_cut(depth);
	return leaf("after siglongjmp");
}

FUNCTION int signals(int flags)
{
	CALL(signals);
	struct sigaction a, old, old_fault;
	memset(&a, 0, sizeof(a));
	a.sa_flags = flags;
	a.sa_handler = on_signal;
	sigaction(SIGUSR1, &a, &old);
	a.sa_handler = on_fault;
	sigaction(SIGSEGV, &a, &old_fault);
	int n = raising(SIGUSR1) + faulting(16);
	sigaction(SIGUSR1, &old, 0);
	sigaction(SIGSEGV, &old_fault, 0);
	return n;
}

FUNCTION int alternate_stack(int n)
{
	CALL(alternate_stack);
	stack_t s, old;
	memset(&s, 0, sizeof(s));
	s.ss_size = 1 << 17;
	s.ss_sp = malloc(s.ss_size);
	sigaltstack(&s, &old);
	n += signals(SA_ONSTACK);
	sigaltstack(&old, 0);
	free(s.ss_sp);
	return n;
}

#ifdef __cpp_exceptions
FUNCTION void at_destruction(void)
{
	CALL(at_destruction);
	recurse(2, "destructor");
}
struct probing {
	__attribute__((always_inline)) ~probing() { at_destruction(); }
};

FUNCTION int throwing(int n)
{
	CALL(throwing);
	probing p;
	ESCAPE(&p);
	if (n)
		return throwing(n - 1) + 1;
	probed("before throw");
	throw n;
}

FUNCTION int throwing_again(int n)
{
	CALL(throwing_again);
	try {
		return throwing(n);
	} catch (...) {
		leaf("caught to be thrown again");
		throw;
	}
}

FUNCTION int catching(int n)
{
	CALL(catching);
	for (int i = 0; i < 3; i++) {
		try {
			n += throwing_again(n);
		} catch (int thrown) {
			n += leaf("caught");
		}
	}
	return n;
}
#endif

FUNCTION void *thread(void *p)
{
	CALL(thread);
	for (int i = 0; i < 50; i++) {
		recurse((int)(long)p, "thread");
		moving_frame((int)(long)p * 100);
	}
	return 0;
}

FUNCTION void threads(void)
{
	CALL(threads);
	pthread_t t[8];
	for (long i = 0; i < 8; i++)
		pthread_create(&t[i], 0, thread, (void *)(1 + i * 5));
	for (long i = 0; i < 8; i++)
		pthread_join(t[i], 0);
}

FUNCTION void run(void)
{
	CALL(run);
	for (int n : {1, 2, 30, 100})
		recurse(n, "recursion");
	recurse(200, "too deep");
	large_frame(17);
	for (int bytes : {16, 4000, 5000, 100000})
		moving_frame(bytes);
	aligned_frame(3);
	page_aligned_frame(4);
	aligned_moving_frame(1, 2, 3, 4, 5, 6, 7, 300);
	areas(3);
	calls_function(4);
	before_tail_calls(5);
	sorting(8);
	signals(0);
	alternate_stack(1);
#ifdef __cpp_exceptions
	catching(5);
#endif
	threads();
}

FUNCTION int huge_frame(int n)
{
	CALL(huge_frame);
	volatile char room[1200000];
	room[n] = 1;
	return leaf("frame of more than 1 MiB") + recurse(3, "frame of more than 1 MiB") + room[n];
}
