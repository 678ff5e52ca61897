"""Lists of a document as columns, for pandas and for Arrow: see cmd/ttmem/internal/document/columns.go."""

from __future__ import annotations

import io
import itertools
import json
from typing import TYPE_CHECKING, Any, Callable, Iterable, Mapping, Sequence

from ttmem.child import Error

if TYPE_CHECKING:
    import pandas
    import pyarrow


# TEXT is the type of texts in data frames: rows share an object for each value. Where Arrow is installed, pandas's own would keep
# a text for each row.
TEXT = "string[python]"


class Column:
    """The values of a field: numbers, or indices of values. If all are equal, it has one value and no numbers."""

    def __init__(self, head: Mapping[str, Any], rows: int) -> None:
        self.key: str = head["key"]
        self.kind: str = head["kind"]
        self.values: list[Any] = head.get("values", [])
        if self.key in ("devices", "callers"):
            self.values = [tuple(one) for one in self.values]  # by which one can group
        self.width: int = head["width"]
        self.rows = rows
        self.missing = bytearray(rows if head["missing"] else 0)
        self.numbers = bytearray(rows * self.width)

    def read(self, stream: io.BufferedReader) -> None:
        for part in (self.missing, self.numbers):
            view = memoryview(part)
            while view:
                n = stream.readinto(view)
                if not n:
                    raise Error("the answer of ttmem ends too early: the program is of another version than this package")
                view = view[n:]

    def indices(self) -> Any:
        """The index of each row's value."""
        import numpy

        if self.width == 0:
            return numpy.zeros(self.rows, numpy.intp)  # take() needs no copy of these, and zeros that are only read no memory
        return numpy.frombuffer(self.numbers, f"<u{self.width}")

    def mask(self) -> Any:
        """Where no value is; None if each row has one."""
        import numpy

        return numpy.frombuffer(self.missing, bool) if self.missing else None

    def pandas(self, nowhere: Any) -> Any:
        """An array of pandas, or a series. Its mask is nowhere, which has no row and belongs to it, if each row has a value."""
        import numpy
        import pandas

        if self.kind in ("int", "uint", "bool"):
            kind = {"int": "<i8", "uint": "<u8", "bool": "?"}[self.kind]
            if self.width:
                numbers = numpy.frombuffer(self.numbers, kind)
            elif self.values[0]:
                numbers = numpy.full(self.rows, self.values[0], kind)
            else:
                numbers = numpy.zeros(self.rows, kind)  # these take no memory until they are written
            array = pandas.arrays.BooleanArray if self.kind == "bool" else pandas.arrays.IntegerArray
            return array(numbers, self.mask() if self.missing else nowhere)
        if self.kind == "text":
            values = pandas.array(self.values, dtype=TEXT)
            if not self.missing:
                return values.take(self.indices())
            indices = self.indices().astype(numpy.intp)
            indices[self.mask()] = -1
            return values.take(indices, allow_fill=True)
        listed = numpy.empty(len(self.values), object)
        for i, value in enumerate(self.values):
            listed[i] = value
        if self.width == 0 and not self.missing:
            values = numpy.broadcast_to(listed, self.rows)  # takes no memory for each row
        else:
            values = listed[self.indices()]
        if self.missing:
            values[self.mask()] = numpy.nan
        return pandas.Series(values, dtype=object, copy=False)  # in an array, a data frame would look for dates

    def arrow(self) -> Any:
        """An array of Arrow. If all rows are equal, its parts are one piece of memory."""
        import pyarrow

        if self.width or self.missing:
            return self._arrow(self.rows)
        part = self._arrow(min(self.rows, EQUAL_ROWS))
        whole, rest = divmod(self.rows, EQUAL_ROWS)
        return pyarrow.chunked_array([part] * whole + [part[:rest]] * (rest > 0), part.type)

    def _arrow(self, rows: int) -> Any:
        """The first rows, made of the memory that is there: what converts arrays of numpy imports pandas first."""
        import numpy
        import pyarrow

        mask = self.mask()
        valid = None if mask is None else pyarrow.py_buffer(numpy.packbits(~mask, bitorder="little"))

        def array(kind: str, memory: Any) -> Any:
            return pyarrow.Array.from_buffers(getattr(pyarrow, kind)(), rows, [valid, pyarrow.py_buffer(memory)])

        if self.kind == "bool":
            bits = numpy.frombuffer(self.numbers, bool) if self.width else numpy.full(rows, self.values[0], bool)
            return array("bool_", numpy.packbits(bits, bitorder="little"))
        if self.kind in ("int", "uint"):
            kind = self.kind + "64"
            return array(kind, self.numbers if self.width else numpy.full(rows, self.values[0], kind))
        indices = array(f"uint{8 * (self.width or 1)}", self.numbers if self.width else bytes(rows))
        if self.key == "devices":
            return list_array(self.values, lambda flat: number_array(flat, "int64")).take(indices)
        if self.key == "callers":
            return list_array(self.values, text_array).take(indices)
        return pyarrow.DictionaryArray.from_arrays(indices, text_array(self.values if self.kind == "text" else map(json.dumps, self.values)))


# EQUAL_ROWS are as many as a part of a column of Arrow has whose rows are equal.
EQUAL_ROWS = 1 << 16


def number_array(values: Sequence[int], kind: str) -> Any:
    """An array of Arrow of numbers."""
    import numpy
    import pyarrow

    return pyarrow.Array.from_buffers(getattr(pyarrow, kind)(), len(values), [None, pyarrow.py_buffer(numpy.array(values, kind))])


def offset_array(lengths: Iterable[int]) -> Any:
    """An array of Arrow: where each of some values begins that lie one after the other, and where the last one ends."""
    return number_array([0, *itertools.accumulate(lengths)], "int32")


def text_array(values: Iterable[str]) -> Any:
    """An array of Arrow of texts."""
    import pyarrow

    encoded = [one.encode(errors="replace") for one in values]
    begins = offset_array(map(len, encoded)).buffers()[1]
    return pyarrow.StringArray.from_buffers(len(encoded), begins, pyarrow.py_buffer(b"".join(encoded)))


def list_array(lists: Sequence[Sequence[Any]], array: Callable[[list[Any]], Any]) -> Any:
    """An array of Arrow of lists. array makes one of their elements."""
    import pyarrow

    return pyarrow.ListArray.from_arrays(offset_array(map(len, lists)), array([one for some in lists for one in some]))


class Columns:
    """A list of a document."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self.rows: int = head["rows"]
        self.columns = {one["key"]: Column(one, self.rows) for one in head["columns"]}

    def read(self, stream: io.BufferedReader) -> None:
        for column in self.columns.values():
            column.read(stream)

    def pandas(
        self, first: Sequence[str], types: Mapping[str, str], some: Sequence[str] | None = None, *, last: bool = False
    ) -> pandas.DataFrame:
        """A data frame whose first columns are always there, or some of its columns. If it is the last one, each column
        gives up its indices."""
        import numpy
        import pandas

        # in one piece: the memory of small ones is not new, and is written to be zero
        nowhere = dict(zip(self.columns, numpy.zeros((len(self.columns), self.rows), bool)))
        known = dict.fromkeys((*first, *self.columns))
        made: dict[str, Any] = dict.fromkeys(known if some is None else some)
        # numbers last: they are there already, and what is made of indices takes more memory while it is made
        for key in sorted(made, key=lambda key: key in self.columns and self.columns[key].kind in ("int", "uint")):
            if key not in known:
                raise Error(f"no column {key}; there are {', '.join(known)}")
            if key in self.columns:
                made[key] = self.columns[key].pandas(nowhere[key])
                if last:
                    self.columns[key].numbers = bytearray()
            elif self.rows:
                raise Error(f"ttmem's JSON has no {key!r}: the program is of another version than this package")
            else:
                made[key] = pandas.array([], dtype=types.get(key, "Int64"))
        return pandas.DataFrame(made, copy=False)

    def arrow(self) -> pyarrow.Table:
        """A table of Arrow. Texts are dictionaries, and what is neither text, number nor a list of chips is JSON."""
        try:
            import pyarrow
        except ImportError:
            raise Error("pyarrow is not installed: pip install pyarrow") from None
        return pyarrow.table({key: column.arrow() for key, column in self.columns.items()})


def read_columns(document: Mapping[str, Any], stream: io.BufferedReader) -> dict[str, Any]:
    """A document with its lists of columns, whose numbers follow it in the stream."""
    made: dict[str, Any] = {}
    for key, value in document.items():
        if isinstance(value, dict) and "columns" in value:
            try:
                value = Columns(value)
            except (KeyError, TypeError):
                raise Error(f"ttmem's {key} cannot be read: the program is of another version than this package") from None
            value.read(stream)
        made[key] = value
    return made
