"""What a worker reads from files before the first prompt: system prompt, context files, skills, prompt templates.

A skill is a directory with instructions (``SKILL.md``) that the model reads when it needs them:
```
---
name: sewing
description: How to sew
env:
  NEEDLE: fine
---
Thread first.
```
Only ``name``, ``description`` and ``env`` (one variable a line) of the front matter are read.
"""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec

from agent.options import Options
from agent.policy import may_be_set
from wire.files import foreign_write_access

_MAX_VARIABLES = 100


class SkillError(ValueError):
    """A skill cannot be used; the message says which and why."""


class Skill(msgspec.Struct, frozen=True):
    """``path`` is its SKILL.md, ``directory`` the real path of where it lies; ``env`` is for children."""

    name: str
    description: str
    path: str
    directory: str
    env: Mapping[str, str]


def read_skill(path: Path) -> Skill:
    """The skill of a directory, or of a SKILL.md itself. Raises OSError or SkillError."""
    file = path if path.is_file() else path / "SKILL.md"
    fields, env = _front_matter(_read(file))
    for name in env:
        if not may_be_set(name):
            raise SkillError(f"the skill {file} may not set the variable {name}")
    if len(env) > _MAX_VARIABLES:
        raise SkillError(f"the skill {file} sets {len(env)} variables, more than {_MAX_VARIABLES}")
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
    for line in _front_matter_lines(text):
        name, _, value = line.partition(":")
        if line[:1].isspace() and in_env:
            env[name.strip()] = _unquoted(value)
        elif not line[:1].isspace():
            in_env = name.strip() == "env" and not value.strip()
            fields[name.strip()] = _unquoted(value)
    return fields, env


def _front_matter_lines(text: str) -> Iterator[str]:
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


_BASE = "You are a coding agent. You work in the directory {cwd}. Use the tools you have; say briefly what you did."


class ProjectContext(msgspec.Struct, frozen=True):
    """The system prompt, and what ``/NAME`` in a prompt may stand for."""

    system_prompt: str
    skills: list[Skill]
    templates: dict[str, str]

    def expand(self, text: str) -> str:
        """Replace ``/NAME rest`` by the template of that name, ``$ARGUMENTS`` in it by the rest."""
        if not text.startswith("/"):
            return text
        name, _, rest = text[1:].partition(" ")
        template = self.templates.get(name)
        return text if template is None else template.replace("$ARGUMENTS", rest.strip())


def load_context(options: Options, cwd: str) -> ProjectContext:
    """Read everything that the options name. Raises OSError (a file cannot be read) or SkillError."""
    skills = [] if options.no_skills else [read_skill(Path(cwd, name)) for name in options.skill]
    templates = [] if options.no_prompt_templates else [Path(cwd, name) for name in options.prompt_template]
    parts = [_text_or_file(options.system_prompt, cwd) if options.system_prompt is not None else _BASE.format(cwd=cwd)]
    parts += [_text_or_file(text, cwd) for text in options.append_system_prompt]
    if not options.no_context_files:
        left_out = frozenset(os.path.abspath(Path(cwd, name)) for name in options.without_context)  # noqa: PTH100 - ..
        parts += _context_files(Path(cwd), left_out)
    if skills:
        lines = [f"- {skill.name}: {skill.description} (read {skill.path})" for skill in skills]
        parts.append("Skills, to be read when they are needed:\n" + "\n".join(lines))
    return ProjectContext("\n\n".join(parts), skills, {path.stem: _read(path) for path in templates})


def _text_or_file(value: str, cwd: str) -> str:
    """``@FILE`` is the text of a file, ``@@text`` the text ``@text``; anything else is literal text."""
    if not value.startswith("@"):
        return value
    return value[1:] if value.startswith("@@") else _read(Path(cwd, value[1:]))


def _context_files(cwd: Path, left_out: frozenset[str]) -> list[str]:
    """Context files of the working directory and its parents; of parents only those that no other user can write."""
    above = [path for directory in reversed(cwd.parents) if _is_trusted_file(path := directory / "AGENTS.md")]
    own = cwd / "AGENTS.md"
    found = (*above, *([own] if own.is_file() else []))
    return [f"From {path}:\n{_read(path)}" for path in found if str(path) not in left_out]


def _is_trusted_file(path: Path) -> bool:
    if not path.is_file():
        return False
    problem = foreign_write_access(path)
    if problem is not None:
        sys.stderr.write(f"agent: {path} is not read: it {problem}, who could add to the system prompt\n")
    return problem is None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(256 * 1024).decode(errors="replace")
