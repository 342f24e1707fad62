"""Skills: directories with instructions (``SKILL.md``) that the model reads when it needs them.

```
---
name: sewing
description: How to sew
env:
  NEEDLE: fine
---
Thread first.
```
Of the front matter only this is read: ``name``, ``description``, and ``env`` with one variable a line.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from agent.tool_environment import may_be_set

__all__ = ["BadSkill", "Skill", "SkillView", "environment_of", "read_skill"]

_MAX_BYTES = 256 * 1024
_MAX_VARIABLES = 100
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class BadSkill(ValueError):
    """A skill cannot be used; the message says which and why."""


class SkillView(msgspec.Struct, frozen=True):
    """A skill as it is shown."""

    name: str
    description: str
    path: str


class Skill(msgspec.Struct, frozen=True):
    """``path`` is its SKILL.md, ``directory`` the real path of where it lies; ``env`` is for children."""

    name: str
    description: str
    path: str
    directory: str
    env: Mapping[str, str]

    def view(self) -> SkillView:
        """What people and the model get to see."""
        return SkillView(self.name, self.description, self.path)


def read_skill(path: Path) -> Skill:
    """The skill of a directory, or of a SKILL.md itself. Raises OSError or BadSkill."""
    file = path if path.is_file() else path / "SKILL.md"
    with file.open("rb") as opened:
        fields, env = _front_matter(opened.read(_MAX_BYTES).decode(errors="replace"))
    for name in env:
        if not _VARIABLE.fullmatch(name) or not may_be_set(name):
            raise BadSkill(f"the skill {file} may not set the variable {name}")
    if len(env) > _MAX_VARIABLES:
        raise BadSkill(f"the skill {file} sets {len(env)} variables, more than {_MAX_VARIABLES}")
    name = fields.get("name") or file.parent.name
    return Skill(name, fields.get("description", ""), str(file), str(file.parent.resolve()), env)


def environment_of(skills: Iterable[Skill]) -> dict[str, str]:
    """The variables of all of them; the first one that sets a name has it."""
    together: dict[str, str] = {}
    for skill in skills:
        together = {**skill.env, **together}
    return together


def _front_matter(text: str) -> tuple[dict[str, str], dict[str, str]]:
    """The fields, and the variables below ``env:``."""
    fields: dict[str, str] = {}
    env: dict[str, str] = {}
    in_env = False
    for line in _lines_between(text):
        name, _, value = line.partition(":")
        if line[:1].isspace() and in_env:
            env[name.strip()] = _unquoted(value)
        elif not line[:1].isspace():
            in_env = name.strip() == "env" and not value.strip()
            fields[name.strip()] = _unquoted(value)
    return fields, env


def _lines_between(text: str) -> Iterator[str]:
    lines = text.splitlines()
    if not lines or lines[0].strip() != "---" or "---" not in (line.strip() for line in lines[1:]):
        return
    for line in lines[1:]:
        if line.strip() == "---":
            return
        if ":" in line and not line.lstrip().startswith("#"):
            yield line


def _unquoted(value: str) -> str:
    value = value.strip()
    if len(value) >= 2 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
