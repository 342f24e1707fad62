"""The house as its files show it: rooms, modules and what each imports, read from the source without running it."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parent.parent

FLOORS = (
    *("errors", "wire", "rpc", "profiles", "pool", "cluster", "router", "heartbeat", "store", "gateway", "doors"),
    *("settings", "app", "stress", "commands", "cli"),
)
"""From the ground up: a room imports only from rooms before it."""

WORKSHOPS = frozenset({"tests", "fixtures", "benchmarks", "manual"})
"""What stands beside the house: it may import any room, no room imports it, it is in no wheel."""

_NOT_OURS = frozenset({"build", "dist", "node_modules", "__pycache__"})
_TEXT_FILES = frozenset(
    {".py", ".toml", ".yaml", ".yml", ".md", ".json", ".jsonl", ".html", ".js", ".css", ".txt", ".sh", ""}
)


class Import(NamedTuple):
    """One import of a top-level package, at a line of a file."""

    file: Path
    line: int
    module: str

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line} imports {self.module}"


@cache
def files() -> tuple[Path, ...]:
    """Every text file of the project, whatever git knows of it; no caches, no environments."""
    return tuple(sorted(path for path in _walk(ROOT) if path.suffix in _TEXT_FILES))


def _walk(directory: Path) -> Iterator[Path]:
    for path in directory.iterdir():
        if path.is_dir():
            hidden = path.name.startswith(".") and path.name != ".ci"
            if not hidden and path.name not in _NOT_OURS and not path.name.endswith(".egg-info"):
                yield from _walk(path)
        else:
            yield path


def rooms() -> set[str]:
    """Every top-level package and module of the house, as it stands."""
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    return (packages | {path.stem for path in ROOT.glob("*.py")}) - WORKSHOPS


def modules_of(*names: str) -> list[Path]:
    """Every Python file of the rooms (or parts of rooms, as ``rpc/pi``)."""
    wanted = [ROOT / name for name in names]
    return [path for path in files() if path.suffix == ".py" and any(_within(path, place) for place in wanted)]


def _within(path: Path, place: Path) -> bool:
    return path == place.with_suffix(".py") or path.is_relative_to(place)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_bytes(), filename=str(path))


@cache
def imports_of(path: Path) -> tuple[Import, ...]:
    """What the file imports anywhere: in functions, for type checkers only, or by name through importlib."""
    return tuple(Import(path, line, module) for node in ast.walk(tree_of(path)) for line, module in _imported(node))


def _imported(node: ast.AST) -> Iterator[tuple[int, str]]:
    match node:
        case ast.Import(names=names):
            yield from ((node.lineno, alias.name) for alias in names)
        case ast.ImportFrom(module=str(module), level=0):
            yield node.lineno, module
        case ast.Call(func=func, args=[ast.Constant(value=str(module)), *_]) if _imports_by_name(func):
            yield node.lineno, module
        case _:
            return


def _imports_by_name(func: ast.expr) -> bool:
    name = func.attr if isinstance(func, ast.Attribute) else func.id if isinstance(func, ast.Name) else ""
    return name in ("import_module", "__import__")
