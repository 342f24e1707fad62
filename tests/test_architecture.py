"""The rules of the house that no linter knows: who may import whom, what the wheel holds, how large a file may be."""

import ast
import itertools
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from collections import Counter
from importlib.metadata import packages_distributions
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.house import FLOORS, ROOT, WORKSHOPS, files, imports_of, modules_of, rooms, tree_of

MAX_LINES = 400
MAX_FUNCTION_LINES = 50
LONGER_FILES: dict[str, str] = {}
"""Files over the limit, each with its reason."""

NOT_FOR = {
    "rpc": {"profiles", "pool"},
    "profiles": {"rpc"},
    "router": {"rpc", "pool"},
}
"""What a room may not know although it lies below it; above it, everything."""

GROUND_FLOOR = {"msgspec", "errors", "wire"}
"""What the ground floor and its own rooms may import beside the standard library."""

ENTRIES = {"pool/__main__.py": "cli"}
"""Modules that lie in a room for the sake of their name: they only start what is named."""

WITHOUT_A_CLOCK = (
    "profiles",
    "router",
    "rpc/acp",
    "rpc/native",
    *(f"rpc/{name}" for name in ("dialect", "params", "procedure", "run_events", "step_collector")),
    *(
        f"wire/{name}"
        for name in ("call_page", "entries", "framing", "messages", "redaction", "run_text", "run_view", "sparkline")
    ),
    *(f"wire/{name}" for name in ("sse", "timers", "transcript", "transcript_repair", "units", "states")),
    *(f"cluster/{name}" for name in ("frames", "lease", "messages", "nodes", "proof", "settings")),
    "pool/machine",
    "pool/transitions",
    "pool/records",
    "pool/waiting_list",
    "gateway/lanes",
    "gateway/sessions/commands",
    "gateway/runs/index",
    "gateway/events/translate",
    "gateway/events/ring",
    *(f"heartbeat/{name}" for name in ("answers", "gates", "records", "schedule", "settings", "system_events", "wake")),
    *(f"heartbeat/cron/{name}" for name in ("jobs", "machine", "schedule", "settings")),
    *(f"heartbeat/delivery/{name}" for name in ("outbox", "settings", "targets")),
    *(
        f"stress/{name}"
        for name in (
            "agents",
            "arrivals",
            "checker",
            "facts",
            "metrics",
            "outcome",
            "plan",
            "request_tracker",
            "schedule",
        )
    ),
)
"""Pure rooms and modules, beside those of the doors that say so: decisions that read no clock, start no process and
await nothing."""

DOORS = ("acp", "control", "dashboard", "http", "openai", "websocket")

STANDARD_LIBRARY_ONLY = (
    *(
        "rpc.guard_main",
        "cluster.node.lease_guard",
        "cluster.ray_driver",
        "fixtures.echo_agent",
        "fixtures.hostile_agent",
        "stress.acp_agent.agent",
    ),
    *("stress.faulty_agent", "stress.helper_programs"),
)
"""Programs that must start fast, or must run whatever is installed."""

PYTEST_MARKS = {"parametrize", "skip", "skipif", "xfail", "usefixtures", "filterwarnings", "trio", "timeout"}


def project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def allowed_imports(room: str) -> set[str]:
    if room == "agent":
        return {"agent", "wire", "errors"}
    return {room, *FLOORS[: FLOORS.index(room)]} - NOT_FOR.get(room, set())


def says_that_it_is_pure(path: Path) -> bool:
    return re.search(r"\bPure[.:]", ast.get_docstring(tree_of(path)) or "") is not None


def python_files() -> list[Path]:
    return [path for path in files() if path.suffix == ".py"]


# --- imports ----------------------------------------------------------------------------------------------------------


def test_every_room_has_its_floor() -> None:
    assert rooms() - {"agent", *FLOORS} == set()


@pytest.mark.parametrize("room", sorted(rooms() & {"agent", *FLOORS}))
def test_a_room_imports_only_from_the_floors_below_it(room: str) -> None:
    ours = rooms() | WORKSHOPS
    allowed = allowed_imports(room)
    inside = [path for path in modules_of(room) if str(path.relative_to(ROOT)) not in ENTRIES]
    wrong = [found for path in inside for found in imports_of(path) if found.top in ours - allowed]
    assert [str(found) for found in wrong] == []


@pytest.mark.parametrize(("entry", "room"), ENTRIES.items())
def test_an_entry_only_starts_its_program(entry: str, room: str) -> None:
    assert [found.module for found in imports_of(ROOT / entry)] == [room]


def test_the_gateway_knows_nothing_of_the_methods_that_call_it() -> None:
    parts = [path for path in modules_of("gateway") if not path.is_relative_to(ROOT / "gateway" / "methods")]
    wrong = [found for path in parts for found in imports_of(path) if found.module.startswith("gateway.methods")]
    assert [str(found) for found in wrong] == []


def test_a_node_program_knows_processes_and_its_link_and_nothing_of_the_pool() -> None:
    shared = {f"cluster.{name}" for name in ("frames", "lease", "link", "messages", "proof", "wire")}
    parts = [*modules_of("cluster/node"), *(ROOT / f"{name.replace('.', '/')}.py" for name in shared)]
    ours = [found for path in parts for found in imports_of(path) if found.top in rooms() - {"rpc", "wire", "errors"}]
    wrong = [found for found in ours if found.module not in shared and not found.module.startswith("cluster.node")]
    assert [str(found) for found in wrong] == []


def test_the_ground_floor_stands_on_the_standard_library_and_msgspec() -> None:
    allowed = GROUND_FLOOR | sys.stdlib_module_names
    wrong = [found for path in modules_of("errors", "wire") for found in imports_of(path) if found.top not in allowed]
    assert [str(found) for found in wrong] == []


def test_pure_modules_neither_wait_nor_read_a_clock() -> None:
    saying_it = filter(says_that_it_is_pure, modules_of(*(f"doors/{door}" for door in DOORS), "gateway/front_ends"))
    impure = {"trio", "time", "subprocess", "socket", "threading", "asyncio"}
    assert [name for name in WITHOUT_A_CLOCK if not modules_of(name)] == [], "there is no such module"
    pure = {*modules_of(*WITHOUT_A_CLOCK), *saying_it}
    wrong = [found for path in sorted(pure) for found in imports_of(path) if found.top in impure]
    assert [str(found) for found in wrong] == []


@pytest.mark.parametrize("door", DOORS)
def test_a_door_knows_no_other_door(door: str) -> None:
    """Those on the port of HTTP know its services; it knows of them in the one list of what is on the port."""
    others = tuple(f"doors.{other}" for other in DOORS if other not in (door, "http"))
    within = [path for path in modules_of(f"doors/{door}") if path != ROOT / "doors" / "http" / "routes.py"]
    assert within
    wrong = [found for path in within for found in imports_of(path) if found.module.startswith(others)]
    assert [str(found) for found in wrong] == []


@pytest.mark.process
@pytest.mark.parametrize("module", STANDARD_LIBRARY_ONLY)
def test_programs_that_must_run_anywhere_start_without_any_installed_package(module: str) -> None:
    program = f"""
import sys, types
for room in ({module.partition(".")[0]!r}, "rpc", "stress", "wire"):
    sys.modules[room] = types.ModuleType(room)  # bare: the room's own __init__ may import more
    sys.modules[room].__path__ = [{str(ROOT)!r} + "/" + room]
import {module}
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", program], check=True, timeout=20)


def test_imports_hidden_in_functions_are_found_too(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text(
        "import a.b\n"
        "def late():\n    from c import d\n    import_module('e.f')\n"
        "if TYPE_CHECKING:\n    import g\n"
        "text = 'import h'\n"
    )
    assert {found.top for found in imports_of(source)} == {"a", "c", "e", "g"}


# --- modules ----------------------------------------------------------------------------------------------------------


def test_every_module_says_first_what_it_is_for() -> None:
    silent = [path for path in modules_of(*rooms()) if not (ast.get_docstring(tree_of(path)) or "").strip()]
    assert [str(path.relative_to(ROOT)) for path in silent] == []


def test_no_file_is_longer_than_can_be_read_in_one_go() -> None:
    long = {str(path.relative_to(ROOT)) for path in python_files() if len(path.read_bytes().splitlines()) > MAX_LINES}
    assert long == set(LONGER_FILES)


def test_no_function_is_longer_than_can_be_read_at_a_glance() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {node.name}"
        for path in modules_of(*rooms())
        for node in ast.walk(tree_of(path))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
        if (node.end_lineno or 0) - node.lineno >= MAX_FUNCTION_LINES
    ]
    assert long == []


def test_no_two_classes_share_a_name() -> None:
    classes = Counter(
        node.name for path in modules_of(*rooms()) for node in ast.walk(tree_of(path)) if isinstance(node, ast.ClassDef)
    )
    assert [name for name, times in classes.items() if times > 1] == []


def test_nothing_is_raised_within_except_star() -> None:
    """Before Python 3.11.4 what is raised there arrives in a group: ``with errors.ungrouped()`` is what to use."""
    raising = [
        f"{path.relative_to(ROOT)}:{statement.lineno}"
        for path in python_files()
        if b"except*" in path.read_bytes()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.TryStar)
        for handler in node.handlers
        for statement in ast.walk(handler)
        if isinstance(statement, ast.Raise)
    ]
    assert raising == []


def test_no_module_keeps_a_place_to_be_filled() -> None:
    """Module-level state outlives every ``async with``: no ``global``, no empty container that waits for content."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in modules_of(*rooms())
        for node in module_level_places(tree_of(path))
    ]
    assert found == []
    assert [path for path in modules_of(*rooms()) if re.search(rb"^\s+global ", path.read_bytes(), re.MULTILINE)] == []


def module_level_places(tree: ast.Module) -> list[ast.stmt]:
    return [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and is_empty(node.value)]


def is_empty(value: ast.expr | None) -> bool:
    match value:
        case ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
        case ast.Call(func=ast.Name(id=name), args=[], keywords=[]):
            return name in ("list", "dict", "set", "deque", "Counter", "WeakSet", "WeakKeyDictionary")
        case ast.Call(func=ast.Name(id="defaultdict")):
            return True
        case _:
            return False


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("a = {}", 1),
        ("a: list[int] = []", 1),
        ("a = set()", 1),
        ("a = defaultdict(list)", 1),
        ("a = {1: 2}", 0),
        ("def f():\n    a = []", 0),
        ("class A:\n    b: list[int] = []", 0),
    ],
)
def test_a_place_to_be_filled_is_recognised(source: str, places: int) -> None:
    assert len(module_level_places(ast.parse(source))) == places


# --- the project ------------------------------------------------------------------------------------------------------


def test_nothing_mentions_a_place_outside_the_project() -> None:
    outside = re.compile(rb"\.\./shared|(?<![\w.*])/(?:work|root)/")
    found = [path for path in files() if outside.search(path.read_bytes())]
    assert [str(path.relative_to(ROOT)) for path in found] == []


def test_every_package_that_is_imported_is_declared_and_the_other_way_round() -> None:
    extras = project()["project"]["optional-dependencies"]
    declared, optional = (
        {canonicalize_name(Requirement(text).name) for text in texts}
        for texts in (project()["project"]["dependencies"], itertools.chain(*extras.values()))
    )
    tops = {found.top for path in modules_of(*rooms()) for found in imports_of(path)} - rooms()
    homes = packages_distributions()
    imported = [{canonicalize_name(home) for home in homes.get(top, [top])} for top in tops - sys.stdlib_module_names]
    assert [names for names in imported if names.isdisjoint(declared | optional)] == []
    assert (declared | optional) - set().union(*imported) == set()


def test_the_wheels_list_of_rooms_is_the_house() -> None:
    listed = project()["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    assert {name.removesuffix(".py") for name in listed} == rooms()
    assert listed == sorted(listed)


@pytest.mark.process
def test_a_built_wheel_holds_the_rooms_and_nothing_else(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=25, check=False)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    names = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {name.removesuffix(".py") for name in names if not name.endswith(".dist-info")} == rooms()


def test_ci_runs_the_check_of_the_makefile_the_wheel_and_the_real_acp_agents() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().endswith("\nmake check\nmake test-wheel\nexec make test-acp\n")
    assert re.search(r"^unset PYTHONUNBUFFERED\b", script.read_text(), re.MULTILINE)
    recipe = re.search(r"^check:.*\n\t@\$\(MAKE\)(.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert {"lint", "suite", "test-system"} <= set(recipe[1].split())


def test_ci_runs_the_demo_and_real_processes_on_the_systems_python_as_an_ordinary_user() -> None:
    """Before Python 3.11.5, which Debian 12 has, things went wrong that no other version shows."""
    recipe = re.search(r"^test-system:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert recipe is not None
    assert {".ci/system-python", "tests/rpc", "tests/acceptance/test_pool_faults_*.py)"} <= set(recipe[1].split())
    script = ROOT / ".ci" / "system-python"
    assert os.access(script, os.X_OK)
    text = script.read_text()
    assert re.search(r"^system=/usr/bin/python3$", text, re.MULTILINE)
    assert "setpriv --reuid=nobody" in text
    assert re.search(r'^"\$\{as_user\[@\]\}" pool demo$', text, re.MULTILINE)


def test_every_mark_of_a_test_is_declared() -> None:
    declared = {line.partition(":")[0] for line in project()["tool"]["pytest"]["ini_options"]["markers"]}
    used = {mark for path in modules_of("tests") for mark in re.findall(r"\bmark\.(\w+)", path.read_text())}
    assert used - PYTEST_MARKS <= declared


def test_every_test_file_lies_in_the_folder_of_its_room() -> None:
    folders = {path.relative_to(ROOT).parts[1] for path in modules_of("tests") if len(path.relative_to(ROOT).parts) > 2}
    assert folders - rooms() <= {"acceptance", "acp", "security", "sim", "mutants", "fixtures", "benchmarks"}


def test_every_program_that_the_hooks_run_before_a_commit_is_the_environments_own() -> None:
    hooks = (ROOT / ".pre-commit-config.yaml").read_text()
    entries = re.findall(r"entry: (\S+)", hooks)
    assert entries
    assert all(entry.startswith(".venv/bin/") for entry in entries)
    assert set(re.findall(r"repo: (\S+)", hooks)) == {"local"}
