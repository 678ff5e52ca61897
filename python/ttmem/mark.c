/* The function with which a process names moments: a probe of ttmem reads its argument. `make generate`
 * builds it for ttmem.mark(); a program in C or C++ may define it itself, and export it. */
void ttmem_mark(const char *name);

void ttmem_mark(const char *name)
{
	__asm__ volatile("nop" : : "D"(name)); /* an instruction that the kernel does not single-step */
}
