// Loads and unloads libraries, calls into them, forks and becomes other programs,
// as it is told line by line; each line is answered by one.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shadow.h"

typedef int (*enter)(int n, const char *what);

FUNCTION int own(int, const char *what)
{
	CALL(own);
	probed(what);
	return 1;
}

FUNCTION int call_all(enter f, int times, const char *what)
{
	CALL(call_all);
	for (int i = 0; i < times; i++)
		f(1 + i % 3, what);
	return times;
}

static int map_often(int n)
{
	int fd = open("/proc/self/exe", O_RDONLY), mapped = 0;

	for (int i = 0; i < n; i++) // the same page again and again is not merged into one
		mapped += mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) != MAP_FAILED;
	close(fd);
	return mapped;
}

int main()
{
	CALL(main);
	char line[4096], word[16], path[4000];
	void *library = 0;
	enter f = own;
	int n;

	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		*path = 0;
		n = 0;
		if (sscanf(line, "%15s %d %3999s", word, &n, path) < 1)
			continue;
		if (!strcmp(word, "open")) { // and call, before anybody can look
			library = dlopen(path, RTLD_NOW);
			f = library ? (enter)dlsym(library, "enter") : 0;
			if (!f) {
				printf("%s\n", dlerror());
				return 1;
			}
			call_all(f, n, "at once");
			printf("%p\n", (void *)f);
		} else if (!strcmp(word, "call")) {
			printf("%d\n", call_all(f, n, path));
		} else if (!strcmp(word, "close")) {
			f = own;
			printf("%d\n", dlclose(library));
		} else if (!strcmp(word, "map")) { // a page of this program's code, n times
			printf("%d\n", map_often(n));
		} else if (!strcmp(word, "fork")) {
			int status = 0;
			pid_t pid = fork();
			if (!pid) {
				usleep(n * 1000);
				call_all(f, 20, path);
				_exit(0);
			}
			waitpid(pid, &status, 0);
			printf("%d\n", status);
		} else if (!strcmp(word, "leave")) { // a child to call when its parent has ended
			if (fork())
				_exit(0);
			puts("child");
			fflush(stdout);
		} else if (!strcmp(word, "exec")) {
			execl(path, path, (char *)0);
			return 1;
		}
		fflush(stdout);
	}
	return 0;
}
