// Throws and catches, n times, in a library that has nothing to do with tt-metal.
#include <stdexcept>

namespace {
[[gnu::noinline]] void fail(int type)
{
	if (type)
		throw std::runtime_error("of another library");
	throw std::out_of_range("of another library");
}
} // namespace

extern "C" void throw_often(long n, int type)
{
	for (long i = 0; i < n; i++) {
		try {
			fail(type);
		} catch (const std::exception &) {
		}
	}
}
