"""Profiles from bare parts: what they keep to themselves, their canonical encoding and the signatures made of it."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from errors import UsageError
from profiles import Resources, SoftArgs, make_profile, with_soft
from profiles.profile import canonical, digest
from tests.profiles.parts import parts, profile, resource_sets, soft_args


def test_an_environment_value_is_in_no_representation() -> None:
    secret = profile(env={"API_KEY": "hunter2"})
    for shown in (repr(secret), str(secret), f"{secret}", pretty_repr(secret)):
        assert "hunter2" not in shown
        assert "API_KEY" in shown


def test_the_environment_is_sorted_by_name() -> None:
    assert profile(env={"B": "1", "A": "2"}).env == (("A", "2"), ("B", "1"))


def test_a_resource_named_twice_counts_once_at_its_first_place() -> None:
    assert profile(resources=Resources(skills=("/b", "/a", "/b"))).resources.skills == ("/b", "/a")


def test_the_short_signature_is_the_beginning_of_the_whole() -> None:
    made = profile()
    assert len(made.short) == 8
    assert made.signature.startswith(made.short)


@pytest.mark.parametrize(
    ("parts", "words"),
    [
        ({"command": ()}, "command is empty"),
        ({"cwd": "here"}, "not an absolute path"),
        *(({"env": {name: "x"}}, "no name of an environment variable") for name in ("", "A=B", "A\0")),
        ({"env": {"KEY": "hunter2\0"}}, "'KEY'"),
        ({"hard_args": ("--system-prompt", "a\0b")}, "NUL"),
    ],
)
def test_parts_that_no_process_could_be_started_from_are_refused_without_a_value(
    parts: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        profile(**parts)
    assert "hunter2" not in str(caught.value)


def test_other_soft_arguments_make_another_signature_of_the_same_hard_profile() -> None:
    small = make_profile(command=["agent"], cwd="/", soft=SoftArgs("openai", "small", "low"), env={"A": "1"})
    changed = with_soft(small, model="large")
    assert changed.soft == SoftArgs("openai", "large", "low")
    assert changed.hard_signature == small.hard_signature
    assert changed.signature != small.signature
    assert with_soft(changed, model="small") == small


values = st.recursive(st.none() | st.text(), lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=8)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (None, b"n"),
        ("", b"s0:"),
        ("abc", b"s3:abc"),
        ("ä", b"s2:\xc3\xa4"),
        ("\udc80", b"s3:\xed\xb2\x80"),
        ((), b"l0:"),
        (("a", None, ("b",)), b"l3:s1:anl1:s1:b"),
    ],
)
def test_the_canonical_encoding_is_the_one_described(value: Any, encoded: bytes) -> None:
    assert canonical(value) == encoded


def test_digest_and_signatures_are_those_of_every_earlier_release() -> None:
    assert digest("profile/1", "a", None, ("b", "ä")) == (
        "252a39b5170f75748961c7e2bcc1d72abedfff1954342e533dd0399ff0e719d8"
    )
    plain = make_profile(command=("agent", "--mode", "rpc"), cwd="/srv/work")
    assert plain.signature == "f40766fa2b2341d6450cf8f5a088928ffac86109fcd9eb396afd370934d67750"
    assert plain.hard_signature == "7d22b615c5a277a57864c814101a2ffee5f17cefacd2b83090ea69cbf5c63e04"


def test_a_full_profile_has_the_signatures_of_every_earlier_release() -> None:
    full = make_profile(
        agent="coder",
        role="reviewer",
        dialect="pi",
        command=("pi", "--mode", "rpc"),
        cwd="/srv/wörk",
        hard_args=("--tools", "read,ls", "--no-skills"),
        soft=SoftArgs("openai", "gpt", "high"),
        resources=Resources(("/s/a", "npm:b"), ("/e/a",), ("/t/a",)),
        env={"B": "2", "A": "1"},
    )
    assert full.signature == "fe57287ef243d36e2f495132c073715c20c2c61072ac692cfc8b24837e059e25"
    assert full.hard_signature == "deff815ef6239a3dd31662bf274b59c52afc7a699ccb00411465538b0580e436"


@given(values, values)
def test_two_values_share_an_encoding_only_if_they_are_equal(one: Any, other: Any) -> None:
    assert (canonical(one) == canonical(other)) == (one == other)


@given(parts, parts)
def test_signatures_are_equal_exactly_where_all_inputs_are(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert (make_profile(**one).signature == make_profile(**other).signature) == (one == other)


@given(parts, parts, st.sampled_from(["command", "cwd", "role", "dialect", "hard_args", "env"]))
def test_any_one_hard_input_changes_both_signatures(one: dict[str, Any], other: dict[str, Any], name: str) -> None:
    before, after = make_profile(**one), make_profile(**{**one, name: other[name]})
    same = one[name] == other[name]
    assert (before.signature == after.signature) == same
    assert (before.hard_signature == after.hard_signature) == same


@given(parts, soft_args, resource_sets)
def test_soft_inputs_change_the_signature_and_keep_the_hard_one(
    one: dict[str, Any], soft: SoftArgs, resources: Resources
) -> None:
    before, after = make_profile(**one), make_profile(**{**one, "soft": soft, "resources": resources})
    same = (soft, resources) == (one["soft"], one["resources"])
    assert (before.signature == after.signature) == same
    assert before.hard_signature == after.hard_signature


@given(parts)
def test_the_order_of_the_environment_is_irrelevant(one: dict[str, Any]) -> None:
    turned = {**one, "env": dict(reversed(one["env"].items()))}
    assert make_profile(**turned) == make_profile(**one)


def test_the_order_of_resources_is_part_of_the_signature() -> None:
    one = profile(resources=Resources(skills=("/a", "/b")))
    other = profile(resources=Resources(skills=("/b", "/a")))
    assert one.signature != other.signature
    assert one.hard_signature == other.hard_signature


def test_moving_a_character_from_one_part_to_the_next_changes_the_signature() -> None:
    assert profile(command=("agent", "ab", "c")).signature != profile(command=("agent", "a", "bc")).signature
    assert profile(command=("agent", "x")).signature != profile(command=("agent",), hard_args=("x",)).signature


def test_the_two_signatures_of_one_profile_differ_even_without_soft_parts() -> None:
    assert profile().signature != profile().hard_signature


def test_agents_of_the_same_content_share_their_workers() -> None:
    assert profile(agent="one").signature == profile(agent="two").signature
