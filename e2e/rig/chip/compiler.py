#!/usr/bin/env python3
"""Debian's RISC-V GCC in the place of the compiler of tt-metal's kernels.

That one is a newer GCC with instructions of the Tensix cores. This one compiles everything but
functions with vector instructions, whose bodies are left out: kernels that move data work, and
compute kernels that use the matrix unit only. Beside this file lie version, data.o and include.
"""
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.realpath(__file__))
GCC = "riscv64-unknown-elf-g++"
PICOLIBC = "/usr/lib/picolibc/riscv64-unknown-elf"
HEADERS = ["-include", HERE + "/include/prefix.h", "-I" + HERE + "/include", "-nostdinc++"]
for folder in ("/include/c++", "/include/target", "/include/c++/backward"):
    HEADERS += ["-isystem", HERE + folder]
HEADERS += ["-isystem", PICOLIBC + "/include"]


def main(args):
    if "--version" in args:
        print("riscv-tt-elf-g++ (%s) 15.1.0" % open(HERE + "/version").read().strip())
        return
    out = args[args.index("-o") + 1]
    if out.endswith(".gch"):  # precompiled headers only save time
        open(out, "w").close()
        return
    tensix = any(re.match("-mcpu=.*-tensix$", a) for a in args)
    args = [b for a in args for b in translated(a)]
    if "-c" not in args:
        link(args)
        return
    args += ["-w", "-ffunction-sections", "-fno-threadsafe-statics", "-mno-save-restore",
             "-fno-jump-tables"]  # tables would be relocations that tt-metal's loader refuses
    if "-DFW_BUILD" not in args:  # kernels refer to the firmware's data, which must all stay
        args.append("-fdata-sections")
    if not tensix:
        run(args + HEADERS)
        return
    args.remove("-c")
    at = args.index("-o")
    source = run(args[:at] + args[at + 2:] + HEADERS + ["-E", "-MT", out], stdout=subprocess.PIPE)
    flags = [a for a in args if re.match("-[fmOsgw]", a)]
    run(flags + ["-x", "c++", "-fpreprocessed", "-c", "-o", out, "-"], input=without_vectors(source))


def link(args):
    # data.o: GNU ld 2.40 places an empty .data outside of its segment. The libraries are the same for
    # both chips.
    run(args + ["-march=rv32im", "-nostdlib", "-Wl,--gc-sections", "-Wl,-melf32lriscv", HERE + "/data.o",
                PICOLIBC + "/lib/rv32im/ilp32/libc.a", "-lgcc"])


def translated(arg):
    """What GCC 12 understands in place of an argument."""
    if arg.startswith("-mcpu=tt-"):
        chip = arg[len("-mcpu=tt-"):][:2]
        machine = ["-march=rv32im" + ("_zicsr" if chip == "bh" else ""), "-mabi=ilp32"]
        return machine + (["-D__riscv_xtttensix%s=1" % chip] if arg.endswith("-tensix") else [])
    if arg.startswith("-std="):
        return ["-std=gnu++20"]
    if arg == "-O3":
        return ["-O2"]
    if re.match("-flto|-fno-lto|-ftt-|-mno-tt-|-W(all|error|no-|invalid)|--param=min-pagesize", arg):
        return []
    return [arg]


VECTORS = re.compile(r"\bsfpi(::|_inline\b)|\bv_(if|endif|block|and)\b|\bvU?(Float|Int)\b|\bdst_reg\b|__builtin_rvtt")
TOKEN = re.compile(r'"(?:[^"\\\n]|\\.)*"|\'(?:[^\'\\\n]|\\.)+\'|[{};]|^#.*$', re.M)


def without_vectors(source):
    """A preprocessed source without the bodies of functions that use the vector unit."""
    text = source.decode()
    # GCC 12 wants a number after "unroll", where some have an argument of a template.
    text = re.sub(r"(?m)^[ \t]*#pragma GCC unroll (?!\d+\s*$).*$", "", text)
    kept, done, head, depth, body = [], 0, 0, 0, None
    for token in TOKEN.finditer(text):
        if token[0] == "{":
            depth += 1
            if body is None and re.search(r"\)\s*(const|noexcept)?\s*$", text[head:token.start()]):
                body, outside = token.end(), depth - 1
        elif token[0] == "}":
            depth -= 1
            if body is not None and depth == outside:
                if VECTORS.search(text, body, token.start()):
                    kept.append(text[done:body])
                    done = token.start()
                body = None
        if body is None and token[0][0] not in "\"'":
            head = token.end()
    return ("".join(kept) + text[done:]).encode()


def run(args, **kw):
    done = subprocess.run([GCC] + args, **kw)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


if __name__ == "__main__":
    main(sys.argv[1:])
