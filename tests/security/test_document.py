"""The threat model says what is tested, and what is tested is said there."""

import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
DOCUMENT = (TESTS.parent / "docs" / "security.md").read_text()
ROWS = {match[1]: match[0] for match in re.finditer(r"^\| (S\d+) \|.*$", DOCUMENT, re.MULTILINE)}


@cache
def names_in(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))


OWN = {
    f"{path.name}::{name}": f"S{number[1]}"
    for path in sorted(Path(__file__).parent.glob("test_*.py"))
    for name in names_in(path)
    if (number := re.match(r"test_s(\d+)_", name))
}


def test_numbers_are_given_once_and_rise() -> None:
    numbers = [int(number) for number in re.findall(r"^\| S(\d+) \|", DOCUMENT, re.MULTILINE)]
    assert numbers == sorted(set(numbers))
    assert len(numbers) > 40


@pytest.mark.parametrize("number", ROWS)
def test_every_promise_is_held_by_tests_that_there_are(number: str) -> None:
    named = re.findall(r"`([\w/]+\.py)::(\w+)`", ROWS[number])
    assert named or number in OWN.values()
    for file, name in named:
        assert name in names_in(TESTS / file), f"{file}::{name}"


def test_every_test_of_a_promise_is_one_of_a_promise_that_is_made() -> None:
    assert {name: number for name, number in OWN.items() if number not in ROWS} == {}
    assert len(OWN) > 25


def test_every_route_and_what_it_needs_is_in_the_document() -> None:
    from tests.security.test_http import ROUTES  # noqa: PLC0415  # the one test that needs it

    for path, _ in ROUTES:
        shown = "anything else below `/v1/`" if path == "/v1/{rest:path}" else f"{path}`"
        assert shown in DOCUMENT, path
