"""Says what Python itself thinks about the lines of many code objects.

Prints a JSON list for each: name, first line, line table in hex, size of the
code in bytes, and ranges [start, end, line] of it, in bytes, with 0 for no line.
The argument is how many code objects of the standard library to go through.
"""

import json
import os
import sys
import types

VERSION = sys.version_info[:2]

SOURCES = [
    "",
    "x = 1",
    "\n" * 300 + "x = 1\n" + "\n" * 1000 + "y = 2\n",
    """
def decorate(*args):
    return lambda f: f

@decorate(
    1,
    2,
)
@decorate()
def decorated(a=decorate(
        3), *,
        b=4):
    '''doc'''
    return (
        a
        + b
    )

class Class(
    object,
):
    x: int = 1
    def method(self):
        return super().__repr__()
    y = [i
         for i in range(10)
         if i % 2
         for j in (
             1, 2)]
""",
    """
def calls(f, g):
    return f(
        g(
            1,
            g(2,

              3),
        ),
        *[4,
          5],
        **{
            'a': g(
                6),
        }
    )(

        7
    )
""",
    """
def blocks(f, x):
    try:
        with f(1) as a, \\
                f(2) as b:
            return a
    except (ValueError,
            TypeError) as e:
        raise e from None
    else:
        x += 1
    finally:
        f(
            3
        )
    while x:
        for y in x:
            if y: continue
            if not y: break
        else:
            pass
    match x:
        case [1, 2, *rest] if rest:
            return rest
        case {'a': 1, **kw}:
            return kw
        case int(real=0) | str():
            pass
        case _:
            yield from x
    assert x, (
        'message')
    del x
    global z
    z = (lambda
         q: (q,

             z))
""",
    """
async def coroutines(f):
    async with f() as a:
        async for b in a:
            await b
    return [c async for c in f() if await
            c]
""",
    # in the first bytes of the tables: steps of all sizes, forth and back
    "def steps(f):\n"
    + "".join("    f(" + "\n" * n + "f(1)" + "\n" * n + ")\n" for n in list(range(70)) + [126, 127, 128, 129, 254, 255, 256, 1000, 5000]),
    "def columns(f):\n" + "".join("    " + "f" + "." + "x" * (n + 1) + ".y; f(" + " " * n + "1)\n" for n in range(0, 300, 7)),
    "def huge(f):\n" + "".join("    f(%d)\n" % n for n in range(1500)),
    "def wide(x):\n    return (" + " + ".join("x" for _ in range(800)) + ")\n",
    "def größe(ä): return ä\ndef функция(ы): return ы\ndef 𐐨𐐩(𐐪): return 𐐪\n",
]
if VERSION >= (3, 11):
    SOURCES.append(
        """
def groups(f):
    try:
        f()
    except* ValueError as e:
        raise
    except* (
            TypeError):
        pass
"""
    )
if VERSION >= (3, 12):
    SOURCES.append(
        """
type Alias[T] = list[
    T]
def generic[T: (int,
                str)](x: T) -> T:
    return f'{x!r:>{
        10}} {
        x}'
class Generic[T]: pass
"""
    )


def nested(code):
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from nested(const)


def report(code):
    size = len(code.co_code)
    # what one has to make of co_lines is that later ranges may repeat a line
    ranges = [[start, end, line or 0] for start, end, line in code.co_lines() if end > start]
    if VERSION >= (3, 11):
        lines = [line or 0 for start, end, line in ranges for _ in range(start, end, 2)]
        assert lines == [position[0] or 0 for position in code.co_positions()], code
    print(json.dumps([code.co_name, code.co_firstlineno, code.co_linetable.hex(), size, ranges]))


def own():
    for source in SOURCES:
        yield from nested(compile(source, "<test>", "exec"))
    code = compile("def f(x):\n  return x\n", "<test>", "exec")
    yield code.replace(co_linetable=b"")
    yield code.replace(co_firstlineno=10**6)
    if VERSION == (3, 10):
        # no line, a line, no line again, no bytes at all
        yield code.replace(co_linetable=bytes([2, 128, 2, 5, 2, 128, 0, 200, 4, 3]))
    else:
        # no location, two forms of a line, no location again
        yield code.replace(co_linetable=bytes([0x80 | 15 << 3, 0x80 | 13 << 3, 10, 0x80 | 14 << 3, 3, 0, 1, 1, 0x80 | 15 << 3 | 7]))
    yield compile("lambda: 0", "<test>", "eval")


def library(count):
    root = os.path.dirname(os.__file__)
    seen = 0
    for folder in ["", "asyncio", "email", "json", "unittest"]:
        for name in sorted(os.listdir(os.path.join(root, folder))):
            path = os.path.join(root, folder, name)
            if not name.endswith(".py"):
                continue
            with open(path, "rb") as f:
                for code in nested(compile(f.read(), path, "exec")):
                    if seen >= count:
                        return
                    seen += 1
                    yield code


for code in own():
    report(code)
for code in library(int(sys.argv[1])):
    report(code)
