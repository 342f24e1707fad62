"""What is kept as JSON takes the memory that its size says, which is what limits are counted in."""

import tracemalloc
from typing import Any

import msgspec
import pytest

from store.records import encode_compact

HEAD = 100
"""Bytes around the content of an object of Python, and then some."""


@pytest.mark.parametrize("size", [10, 40_000])
def test_what_is_kept_takes_no_more_memory_than_its_size(size: int) -> None:
    value = {"text": "x" * size}
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        kept = [encode_compact(value) for _ in range(20)]
        taken = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert taken < 20 * (len(kept[0]) + HEAD)


@pytest.mark.parametrize("value", [None, {}, {"text": "ä"}, [1, 2.5, None]])
def test_it_is_what_the_encoder_says(value: Any) -> None:
    assert encode_compact(value) == msgspec.json.encode(value)
