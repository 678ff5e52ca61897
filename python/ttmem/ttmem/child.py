"""The program ttmem as a child that answers questions about one recording: see cmd/ttmem/answer.go."""

from __future__ import annotations

import contextlib
import io
import json
import os
import struct
import subprocess
import tempfile
import threading
from typing import Any, BinaryIO, Iterator, Sequence, cast

# The kinds of frames that the child writes.
OPENED, OUTPUT, SAID, END = (ord(kind) for kind in "vowe")
LONGEST = 1 << 24  # the largest frame that is read


class Error(Exception):
    """ttmem cannot read the recording, does not take the arguments, or printed something that this
    package cannot read."""


def printable(value: Any) -> Any:
    """A document without what a terminal acts on: names come from traced programs."""
    if isinstance(value, dict):
        return {printable(key): printable(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [printable(one) for one in value]
    if isinstance(value, str) and not value.isprintable():
        return "".join(c for c in value if c.isprintable() or c == "\n")
    return value


def document(text: bytes, of: str) -> dict[str, Any]:
    """The JSON document that a command printed."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        read = None
    if not isinstance(read, dict) or read.get("v") != 1:
        raise Error(f"{of} printed no JSON of ttmem: {printable(text[:100].decode(errors='replace'))!r}")
    return cast("dict[str, Any]", printable(read))


def lines(said: bytes) -> list[str]:
    """What a command wrote to standard error."""
    return [printable(line.removeprefix("ttmem: ")) for line in said.decode(errors="replace").splitlines() if line]


def named(file: str) -> str:
    """The name of a file as an argument, which is no flag."""
    return os.path.join(".", file) if file.startswith("-") else file


class Child:
    """A process `ttmem answer FILE`. It answers one question at a time."""

    def __init__(self, command: str, file: str) -> None:
        self.command, self.owner = command, os.getpid()
        self.stderr = tempfile.TemporaryFile()
        try:
            # a session of its own: Ctrl-C interrupts Python only, which then ends the child
            self.process = subprocess.Popen(
                [command, "answer", named(file)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.stderr, start_new_session=True
            )
        except OSError as error:
            self.stderr.close()
            raise Error(f"no {command}: install ttmem, or name it: ttmem.open(file, command=...): {error}") from None
        self.stdin, self.stdout = cast(BinaryIO, self.process.stdin), cast(BinaryIO, self.process.stdout)
        self.opened: Any = None
        try:
            kind, length = self.frame()
            self.opened = json.loads(self.read(length)) if kind == OPENED else None
            if not isinstance(self.opened, dict) or "version" not in self.opened:
                raise ValueError
        except Error:
            self.end()
            raise
        except ValueError:
            self.end()
            raise Error(f"{command} answer printed no JSON of ttmem: the program is of another version than this package") from None
        except BaseException:
            self.end()
            raise

    def read(self, length: int) -> bytes:
        text = self.stdout.read(length)
        if len(text) < length:
            raise Error(self.why())
        return text

    def frame(self) -> tuple[int, int]:
        """The kind and the length of the next frame."""
        kind, length = struct.unpack("<BI", self.read(5))
        if length > LONGEST or kind not in (OPENED, OUTPUT, SAID, END):
            raise ValueError
        return kind, length

    def why(self) -> str:
        """Says why the child has ended."""
        self.process.kill()  # if it only closed its output
        status = self.process.wait()
        self.stderr.seek(0)
        said = lines(self.stderr.read())
        if any(line.startswith("unknown command") for line in said):
            return f"{self.command} has no command answer: the program is of another version than this package"
        if said and status == 1:
            return said[-1]
        if said:
            return f"{self.command} failed with status {status}: {said[0]}"
        return f"{self.command} ended while it answered, with status {status}"

    def end(self) -> None:
        """Ends the process, unless it is that of the process that this one was forked from."""
        if self.owner == os.getpid() and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for stream in (self.stdin, self.stdout, self.stderr):
            with contextlib.suppress(OSError):
                stream.close()

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None


class Answer(io.RawIOBase):
    """What a command prints, read as it comes. At its end it has the exit status, and what the command wrote to
    standard error."""

    def __init__(self, child: Child, verb: str) -> None:
        self.child, self.verb = child, verb
        self.rest = 0  # of the frame
        self.some = False
        self.said = b""
        self.status: int | None = None

    def lines(self) -> list[str]:
        """What the command wrote to standard error."""
        return lines(self.said)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            while self.rest == 0 and self.status is None:
                kind, length = self.child.frame()
                if kind == OUTPUT:
                    self.rest, self.some = length, True
                elif kind == SAID:
                    self.said += self.child.read(length)
                else:
                    self.status = int(self.child.read(length))
        except ValueError:
            raise Error(f"{self.child.command} {self.verb} printed no JSON of ttmem: the program is of another version than this package") from None
        view = memoryview(buffer)[: self.rest]
        if len(view) == 0:
            return 0
        n = cast(int, self.child.stdout.readinto(view))  # type: ignore[attr-defined]
        if n == 0:
            raise Error(self.child.why())
        self.rest -= n
        return n


class Children:
    """The children for a recording: one, and others while it answers, such as for an iterator of events."""

    def __init__(self, command: str, file: str) -> None:
        self.command, self.file = command, file
        self.lock = threading.RLock()  # the finalizers that a collection runs may ask, too
        self.idle: list[Child] = []
        self.closed = False

    def take(self) -> Child:
        with self.lock:
            if self.closed:
                raise Error(f"{self.file} is closed: open it again")
            idle, self.idle = self.idle, []
        usable = [child for child in idle if child.usable]
        for child in idle:
            if child not in usable:
                child.end()
        taken = usable.pop() if usable else Child(self.command, self.file)
        with self.lock:
            self.idle += usable
        return taken

    def give(self, child: Child) -> None:
        with self.lock:
            if not self.closed:
                self.idle.append(child)
                return
        child.end()

    @contextlib.contextmanager
    def ask(self, args: Sequence[str], columns: bool = False, only: Sequence[str] = ()) -> Iterator[tuple[Answer, io.BufferedReader]]:
        """Asks a child with the arguments of a command; with columns, for a document with columns, or with only some of
        them. One whose answer is not read to its end is ended."""
        child = self.take()
        answer = Answer(child, args[0])
        try:
            try:
                child.stdin.write(json.dumps({"args": args, "columns": columns, "only": list(only)}).encode() + b"\n")
                child.stdin.flush()
            except OSError:
                raise Error(child.why()) from None
            yield answer, io.BufferedReader(answer, 1 << 16)
        finally:
            if answer.status is None or answer.rest:
                child.end()
            else:
                self.give(child)

    def close(self) -> None:
        with self.lock:
            self.closed = True
            idle, self.idle = self.idle, []
        for child in idle:
            child.end()
