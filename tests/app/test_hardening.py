"""Whose settings of the C library's allocator hold."""

import ctypes
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from app import hardening


@pytest.mark.parametrize(
    ("env", "count"),
    [
        ({}, 3),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=4"}, 3),
        ({"MALLOC_ARENA_MAX": "8"}, 0),
        ({"GLIBC_TUNABLES": "glibc.rtld.nns=4:glibc.malloc.arena_max=8"}, 0),
    ],
)
def test_what_the_environment_sets_of_the_allocator_holds(
    monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str], count: int
) -> None:
    calls: list[tuple[int, int]] = []
    library = SimpleNamespace(mallopt=lambda option, value: calls.append((option, value)))
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: library)
    hardening.bound_heap(env)
    assert len(calls) == count


def test_another_c_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _name: SimpleNamespace())
    hardening.bound_heap({})
