"""Errors: each kind has one code for good, and crosses a door as itself."""

import ast
import json
from collections import Counter
from typing import Any

import pytest

import errors
from errors import PoolError, WorkerExited, error_from_wire, unwrap_exception_groups
from tests.house import modules_of, rooms, tree_of

CODES = {
    "AcquireTimeout": "acquire_timeout",
    "Conflict": "conflict",
    "InternalError": "internal",
    "NestedSaturated": "nested_saturated",
    "NoSupervisor": "no_supervisor",
    "NoWorker": "no_worker",
    "PoolClosed": "pool_closed",
    "PoolError": "pool_error",
    "PoolSaturated": "saturated",
    "ProfileBroken": "profile_broken",
    "ProtocolViolation": "protocol_violation",
    "RequestTimeout": "request_timeout",
    "ResumeFailed": "resume_failed",
    "RunAborted": "aborted",
    "RunCutShort": "run_cut_short",
    "RunInterrupted": "interrupted",
    "SubscriberBehind": "behind",
    "UsageError": "usage",
    "WorkerError": "worker_error",
    "WorkerExited": "worker_exited",
    "WorkerRefused": "worker_refused",
    "WorkerStalled": "worker_stalled",
    "WorkerStartFailed": "worker_start_failed",
}
"""What clients rely on: a code may be added here, never changed."""

KINDS = [getattr(errors, name) for name in CODES]


def test_every_error_keeps_its_code() -> None:
    assert {kind.__name__: kind.code for kind in KINDS} == CODES


def test_no_two_errors_of_the_house_have_the_same_code() -> None:
    modules = [path for path in modules_of(*rooms()) if "\n    code" in path.read_text()]
    codes = Counter(code for path in modules for code in codes_of_errors(tree_of(path)))
    assert len(codes) >= len(CODES)
    assert [code for code, count in codes.items() if count > 1] == []


def codes_of_errors(tree: ast.Module) -> list[str]:
    """The codes of all classes that are errors by their base's name; one without its own has its base's and is fine."""
    errors_by_name = set(CODES)
    codes: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and (node.name == "PoolError" or names_of_bases(node) & errors_by_name):
            errors_by_name.add(node.name)
            codes += map(constant_code, filter(is_code, node.body))
    return codes


def names_of_bases(node: ast.ClassDef) -> set[str]:
    return {base.id for base in node.bases if isinstance(base, ast.Name)}


def is_code(node: ast.stmt) -> bool:
    targets = [node.target] if isinstance(node, ast.AnnAssign) else getattr(node, "targets", [])
    return [target.id for target in targets if isinstance(target, ast.Name)] == ["code"]


def constant_code(node: Any) -> str:
    return str(ast.literal_eval(node.value))


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_crosses_a_door_as_itself(kind: type[PoolError]) -> None:
    details: dict[str, Any] = {"message": "x", "self": [1.5, {"": None}], "code": "other", "retry_after": 2, "": True}
    raised = kind("it's \ud800\n full", **details)
    rebuilt = error_from_wire(*json.loads(json.dumps([raised.code, raised.message, raised.details])))
    assert type(rebuilt) is kind
    assert (rebuilt.message, str(rebuilt), rebuilt.details) == (raised.message, raised.message, details)


def test_a_fact_without_a_value_is_no_fact() -> None:
    assert PoolError("x", worker=None, session="s").details == {"session": "s"}


def test_an_unknown_code_is_kept_beside_a_plain_error() -> None:
    rebuilt = error_from_wire("from_the_future", "x", {"worker": "w1"})
    assert type(rebuilt) is PoolError
    assert rebuilt.details == {"worker": "w1", "code": "from_the_future"}


def test_an_error_is_caught_by_whose_fault_it_is() -> None:
    with pytest.raises(errors.WorkerError) as caught:
        raise error_from_wire("worker_exited", "gone", {"stderr_tail": "boom"})
    assert (caught.value.stderr_tail, caught.value.retry_after) == ("boom", None)
    crossed = error_from_wire("behind", "too slow", {"bookmark": 7})
    assert isinstance(crossed, errors.SubscriberBehind)
    assert crossed.bookmark == 7


@pytest.mark.parametrize(("details", "sent"), [({}, True), ({"sent": True}, True), ({"sent": False}, False)])
def test_a_request_counts_as_sent_unless_the_error_knows_better(details: dict[str, Any], sent: bool) -> None:  # noqa: FBT001  # pytest passes it
    assert WorkerExited("gone", **details).sent is sent


def test_the_error_in_the_groups_of_nurseries_is_found_however_deep_it_is() -> None:
    error = PoolError("full")
    with pytest.raises(PoolError) as caught, unwrap_exception_groups():
        raise ExceptionGroup("outer", [ExceptionGroup("inner", [error]), PoolError("closed")])
    assert caught.value is error


def test_what_is_no_error_of_ours_takes_precedence_in_a_group() -> None:
    with pytest.raises(ExceptionGroup) as caught, unwrap_exception_groups():
        raise ExceptionGroup("outer", [PoolError("full"), ExceptionGroup("inner", [ValueError("a defect")])])
    assert caught.value.split(PoolError)[0] is None
    assert caught.group_contains(ValueError, match="a defect", depth=2)
    with pytest.raises(ValueError, match="no group"), unwrap_exception_groups():
        raise ValueError("no group")
