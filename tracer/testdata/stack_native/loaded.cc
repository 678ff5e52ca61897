// A library to be loaded. NAME and OTHER are its functions': libraries that differ in
// nothing else have their code at the same places.
#include "shadow.h"

#define PASTE(a, b) a##_##b
#define MADE(a, b) PASTE(a, b)
#define TEXT(a) #a
#define STRING(a) TEXT(a)

extern "C" NOINLINE int MADE(NAME, inner)(int n, const char *what)
{
	CALL_AS(STRING(NAME) "_inner");
	volatile char room[ROOM];
	room[n] = n;
	probed(what);
	return room[n];
}

extern "C" NOINLINE int MADE(NAME, outer)(int n, const char *what)
{
	CALL_AS(STRING(NAME) "_outer");
	return n > 1 ? MADE(NAME, outer)(n - 1, what) + 1 : MADE(NAME, inner)(n, what) + 1;
}

FUNCTION int enter(int n, const char *what)
{
	CALL(enter);
	return MADE(NAME, outer)(n, what) + 1;
}
