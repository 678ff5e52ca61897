"""Marks of a process that nobody traces: they do nothing. e2e has the others."""

import ctypes

import pytest
import ttmem
from ttmem import marking


def test_it_does_nothing():
    assert marking._function is not None
    assert ttmem.mark("warm") is None
    assert ttmem.mark("a" * 1000) is None


def test_the_name_that_is_passed(monkeypatch):
    names = []
    monkeypatch.setattr(marking, "_function", names.append)
    ttmem.mark("épo")
    ttmem.mark("a" * 126 + "é")  # which is cut as a whole
    assert names == ["épo".encode(), b"a" * 126]


@pytest.mark.parametrize("name", ["", "a\0b"])
def test_a_wrong_name(name):
    with pytest.raises(ValueError):
        ttmem.mark(name)


def test_another_machine(monkeypatch):
    def cannot(path):
        raise OSError("wrong ELF class")

    monkeypatch.setattr(ctypes, "PyDLL", cannot)
    assert marking._load() is None
    monkeypatch.setattr(marking, "_function", None)
    assert ttmem.mark("warm") is None
