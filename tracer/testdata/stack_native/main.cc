// main LIBRARY...: runs what the libraries have, once it is told to.
#include <dlfcn.h>
#include <stdio.h>

#include "shadow.h"

int main(int argc, char **argv)
{
	CALL(main);
	void *libraries[32];

	for (int i = 1; i < argc; i++) {
		libraries[i] = dlopen(argv[i], RTLD_NOW | RTLD_LOCAL);
		if (!libraries[i]) {
			fputs(dlerror(), stderr);
			return 1;
		}
	}
	puts("ready");
	fflush(stdout);
	getchar();
	for (int i = 1; i < argc; i++) {
		((void (*)(void))dlsym(libraries[i], "run"))();
		((int (*)(int))dlsym(libraries[i], "huge_frame"))(5);
	}
	return 0;
}
