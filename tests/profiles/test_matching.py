"""How well a worker fits, and the words for why it does not."""

from typing import Any

import pytest
from hypothesis import assume, given

from profiles import MatchLevel, Resources, SoftArgs, first_difference, make_profile, match, surplus
from tests.profiles.parts import parts, profile, resource_sets, soft_args

PLAIN = SoftArgs()


def test_the_levels_are_ordered_best_first() -> None:
    order = [MatchLevel.BOUND, MatchLevel.EXACT, MatchLevel.HARD, MatchLevel.SOFT_SUPERSET, MatchLevel.NONE]
    assert sorted(MatchLevel) == order
    assert MatchLevel.SOFT_SUPERSET.label == "soft_superset"


@given(parts)
def test_a_fresh_worker_is_exact_for_its_own_profile(one: dict[str, Any]) -> None:
    made = make_profile(**one)
    assert match(made, made.soft, made) is MatchLevel.EXACT
    assert surplus(made, made) == 0
    assert first_difference(made, made) == ""


@given(parts, parts)
def test_a_fresh_worker_is_exact_only_for_an_equal_signature(one: dict[str, Any], other: dict[str, Any]) -> None:
    have, want = make_profile(**one), make_profile(**other)
    assert (match(have, have.soft, want) is MatchLevel.EXACT) == (have.signature == want.signature)


@given(parts, parts)
def test_a_worker_of_other_hard_parts_never_matches(one: dict[str, Any], other: dict[str, Any]) -> None:
    have, want = make_profile(**one), make_profile(**other)
    assume(have.hard_signature != want.hard_signature)
    assert match(have, want.soft, want) is MatchLevel.NONE
    assert first_difference(have, want) != ""


@given(resource_sets, resource_sets, soft_args, soft_args)
def test_every_level_means_what_it_says(
    mine: Resources, wanted: Resources, have_soft: SoftArgs, want_soft: SoftArgs
) -> None:
    have, want = profile(resources=mine), profile(resources=wanted, soft=want_soft)
    level = match(have, have_soft, want)
    reachable = all(
        getattr(want_soft, name) is not None or getattr(have_soft, name) is None
        for name in ("provider", "model", "thinking")
    ) and (want_soft.model is not None or want_soft.provider == have_soft.provider)
    if not mine.contains(wanted) or not reachable:
        assert level is MatchLevel.NONE
    elif mine != wanted:
        assert level is MatchLevel.SOFT_SUPERSET
    else:
        assert level is (MatchLevel.EXACT if have_soft == want_soft else MatchLevel.HARD)


@given(resource_sets, resource_sets, soft_args, soft_args)
def test_once_reconciled_a_matching_worker_still_matches_and_no_worse(
    mine: Resources, wanted: Resources, have_soft: SoftArgs, want_soft: SoftArgs
) -> None:
    have, want = profile(resources=mine), profile(resources=wanted, soft=want_soft)
    before = match(have, have_soft, want)
    assume(before is not MatchLevel.NONE)
    assert match(have, want.soft, want) <= before


@given(resource_sets, resource_sets)
def test_the_surplus_is_what_the_worker_has_more(mine: Resources, wanted: Resources) -> None:
    assume(mine.contains(wanted))
    assert surplus(profile(resources=mine), profile(resources=wanted)) == mine.count() - wanted.count()


@given(parts, parts, soft_args)
def test_there_is_a_difference_to_name_exactly_where_the_match_is_not_exact(
    one: dict[str, Any], other: dict[str, Any], have_soft: SoftArgs
) -> None:
    have, want = make_profile(**one), make_profile(**other)
    assert (first_difference(have, want, have_soft) == "") == (match(have, have_soft, want) is MatchLevel.EXACT)


def test_a_worker_that_was_set_to_another_model_is_hard_for_its_old_one() -> None:
    want = profile(soft=SoftArgs(model="a"))
    assert match(want, SoftArgs(model="b"), want) is MatchLevel.HARD


def test_the_default_model_of_another_provider_needs_another_worker() -> None:
    have, want = profile(), profile(soft=SoftArgs(provider="openai"))
    assert match(have, have.soft, want) is MatchLevel.NONE
    assert first_difference(have, want) == "provider: the worker has none, wanted 'openai'"
    named = profile(soft=SoftArgs(provider="openai", model="gpt"))
    assert match(have, have.soft, named) is MatchLevel.HARD


def test_a_worker_that_was_set_to_a_model_cannot_go_back_to_its_default() -> None:
    want = profile()
    assert match(want, SoftArgs(model="b"), want) is MatchLevel.NONE
    assert first_difference(want, want, SoftArgs(model="b")) == (
        "model: the worker was set to 'b', wanted its own default"
    )


def test_the_same_resources_in_another_order_are_a_superset_without_surplus() -> None:
    have = profile(resources=Resources(skills=("/a", "/b")))
    want = profile(resources=Resources(skills=("/b", "/a")))
    assert match(have, PLAIN, want) is MatchLevel.SOFT_SUPERSET
    assert surplus(have, want) == 0
    assert first_difference(have, want) == "skills: the same in another order"


def test_a_resource_of_another_kind_is_another_resource() -> None:
    have = profile(resources=Resources(skills=("/a",)))
    want = profile(resources=Resources(extensions=("/a",)))
    assert match(have, PLAIN, want) is MatchLevel.NONE


@pytest.mark.parametrize(
    ("have", "want", "words"),
    [
        ({"role": "coder"}, {}, "role: the worker has 'coder', wanted 'default'"),
        ({}, {"cwd": "/other"}, "cwd: the worker has '/work', wanted '/other'"),
        ({}, {"dialect": "pi"}, "dialect: the worker has 'native', wanted 'pi'"),
        ({}, {"command": ("pi",)}, "command: the worker has 'agent', wanted 'pi'"),
        (
            {"hard_args": ("--tools", "ls")},
            {"hard_args": ("--tools", "ls,read")},
            "arguments, after --tools: the worker has 'ls', wanted 'ls,read'",
        ),
        ({"hard_args": ("--no-skills",)}, {}, "arguments: the worker has '--no-skills', wanted none"),
        ({"env": {"A": "1"}}, {}, "environment: the worker also has A"),
        ({}, {"env": {"A": "1"}}, "environment: the worker lacks A"),
        ({}, {"resources": Resources(skills=("/a",))}, "skills: the worker lacks '/a'"),
        ({"resources": Resources(("/a",), ("/e",))}, {}, "skills: the worker also has '/a'"),
        ({}, {"soft": SoftArgs(thinking="high")}, "thinking: the worker has none, wanted 'high'"),
    ],
)
def test_the_first_difference_is_told_in_words(have: dict[str, Any], want: dict[str, Any], words: str) -> None:
    assert first_difference(profile(**have), profile(**want)) == words


def test_what_rules_a_worker_out_is_told_before_what_only_costs_a_step() -> None:
    have = profile(soft=SoftArgs(model="a"), resources=Resources(skills=("/a",)))
    want = profile(soft=SoftArgs(model="b"), resources=Resources(prompt_templates=("/t",)))
    assert first_difference(have, want) == "prompt templates: the worker lacks '/t'"


def test_a_difference_is_said_without_the_values_of_an_environment_and_cut() -> None:
    said = first_difference(profile(env={"KEY": "hunter2"}), profile(env={"KEY": "hunter3"}))
    assert said == "environment: KEY has another value"
    assert len(first_difference(profile(), profile(hard_args=("x" * 10_000,)))) < 200
