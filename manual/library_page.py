"""The page of the library, from the docstrings of what ``pool`` exports."""

import inspect
from collections.abc import Iterator

import msgspec

import pool
import profiles
from manual.markdown import describe_structs, prose
from settings.problems import is_struct

_INTRODUCTION = """# Library

`pool` is also a Python package: its pool of workers without the supervisor, under trio. The
[README](../../README.md#as-a-library) has a program to copy. `pool.__version__` is the version.
"""
_SECTIONS = ("Args:", "Raises:", "Attributes:", "Returns:", "Yields:")


def library_page() -> str:
    """The page."""
    lines = [_INTRODUCTION]
    structs: list[type[msgspec.Struct]] = []
    exported = [(pool, name) for name in pool.__all__] + [(profiles, "ProfilesSettings"), (profiles, "build_profile")]
    for module, name in exported:
        thing = getattr(module, name)
        if is_struct(thing):
            structs.append(thing)
        elif not name.startswith("_"):
            lines += _describe(f"{module.__name__}.{name}", thing)
    return "\n".join([*lines, "## Settings and figures", "", *describe_structs(structs)])


def _describe(name: str, thing: object) -> Iterator[str]:
    yield from (f"## {name}", "", _text(thing), "")
    if isinstance(thing, type):
        for member, value in vars(thing).items():
            if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod)):
                function = value.fget if isinstance(value, property) else getattr(thing, member)
                parameters = "" if isinstance(value, property) else _signature(function)
                kind = "async " if inspect.iscoroutinefunction(function) else ""
                yield from (f"### {name}.{member}", "", "```python", f"{kind}{member}{parameters}", "```", "")
                yield from (_text(function), "")
    else:
        yield from ("```python", f"{name}{_signature(thing)}", "```", "")


def _signature(function: object) -> str:
    return str(inspect.signature(function)).replace("(self, ", "(").replace("(self)", "()")  # type: ignore[arg-type]  # what is callable has one


def _text(thing: object) -> str:
    """The docstring; what stands indented below ``Args:`` and the like becomes a list."""
    lines = []
    for line in prose(inspect.getdoc(thing) or "").splitlines():
        is_item = line.startswith("    ") and not line.startswith("     ")
        if line.strip() in _SECTIONS:
            lines += ["", f"**{line.strip()}**", ""]
        else:
            lines.append(f"- {line.strip()}" if is_item else line.strip())
    return "\n".join(lines)
