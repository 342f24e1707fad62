"""Every promise of README.md names tests that exist; the agent changes nothing that belongs to its whole process."""

import ast
import re
from pathlib import Path

from tests.house import modules_of, tree_of

HERE = Path(__file__).parent
AGENT = HERE.parent
_GLOBAL = {"chdir", "fchdir", "putenv", "unsetenv", "umask", "setlocale", "seteuid", "setuid"}


def test_each_of_the_twenty_five_promises_is_held_by_tests_that_there_are() -> None:
    rows = re.findall(r"^\| (\d+) \| [^|]+ \| ([^|]+) \|$", (HERE / "README.md").read_text(), re.MULTILINE)
    assert [int(number) for number, _ in rows] == list(range(1, 26))
    for _, held_by in rows:
        tests = re.findall(r"`([\w/]+\.py)::(\w+)`", held_by)
        assert len(tests) == held_by.count("::") >= 1
        for file, name in tests:
            assert f"def {name}(" in (AGENT / file).read_text()


def test_no_code_of_the_agent_changes_the_directory_or_the_environment_of_its_process() -> None:
    """Beside what begins it: the fork server gives a new worker its directory as ``exec`` would."""
    modules = [path for path in modules_of("agent") if path.name != "fork_server.py"]
    found = [f"{path.name}:{node.lineno}" for path in modules for node in _globals_set(tree_of(path))]
    assert found == []


def _globals_set(tree: ast.Module) -> list[ast.expr]:
    """What changes the process: calls by name, and assignments to ``os.environ``."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr in _GLOBAL]
    places = [
        node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del)
    ]
    return [*calls, *(node for node in places if ast.unparse(node.value).endswith("environ"))]
