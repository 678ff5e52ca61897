/* A function whose name names.py replaces with a hostile one of the same length. */
__attribute__((noinline, used)) static int a_function_with_a_long_name_to_be_replaced(int n)
{
	volatile int sum = 0;

	for (int i = 0; i < n; i++)
		sum += i * n;
	return sum;
}

void *where(void) { return (void *)a_function_with_a_long_name_to_be_replaced; }
