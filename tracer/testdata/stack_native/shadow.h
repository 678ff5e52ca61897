// The stack that a thread has by its functions' own account: each says when it
// is entered and left.
#pragma once

extern "C" {
void shadow_push(const char *function);
void shadow_pop(void);
int shadow_depth(void);
void shadow_cut(int depth);
// probed is what the test traces. It writes the thread's shadow to a file.
void probed(const char *what);
}

struct call {
	explicit call(const char *function) { shadow_push(function); }
	~call() { shadow_pop(); }
};

// MODULE is the name of the file that the code is linked into.
#define CALL_AS(symbol) call here_(symbol "@" MODULE)
#define CALL(function) CALL_AS(#function)
#define NOINLINE __attribute__((noinline, visibility("default")))
#define FUNCTION extern "C" NOINLINE
#define ESCAPE(p) __asm__ volatile("" ::"r"(p) : "memory")
