"""What a worker knows from files before the first prompt: system prompt, context files, skills, prompt templates."""

import os
import sys
from pathlib import Path

import msgspec

from agent.options import Options
from agent.skills import Skill, read_skill
from wire.ownership import writable_by_others

__all__ = ["Knowledge", "gather"]

_BASE = "You are a coding agent. You work in the directory {cwd}. Use the tools you have; say briefly what you did."
_MAX_FILE_BYTES = 256 * 1024


class Knowledge(msgspec.Struct, frozen=True):
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


def gather(options: Options, cwd: str) -> Knowledge:
    """Read everything that the options name. Raises OSError (a file cannot be read) or BadSkill."""
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
    return Knowledge("\n\n".join(parts), skills, {path.stem: _read(path) for path in templates})


def _text_or_file(value: str, cwd: str) -> str:
    """``@FILE`` is the text of a file, ``@@text`` the text ``@text``; anything else is literal text."""
    if not value.startswith("@"):
        return value
    return value[1:] if value.startswith("@@") else _read(Path(cwd, value[1:]))


def _context_files(cwd: Path, left_out: frozenset[str]) -> list[str]:
    """Context files of the working directory and its parents; of parents only those that no other user can write."""
    above = [path for directory in reversed(cwd.parents) if _is_context(path := directory / "AGENTS.md")]
    own = cwd / "AGENTS.md"
    found = (*above, *([own] if own.is_file() else []))
    return [f"From {path}:\n{_read(path)}" for path in found if str(path) not in left_out]


def _is_context(path: Path) -> bool:
    if not path.is_file():
        return False
    problem = writable_by_others(path)
    if problem is not None:
        sys.stderr.write(f"agent: {path} is not read: it {problem}, who could add to the system prompt\n")
    return problem is None


def _read(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MAX_FILE_BYTES).decode(errors="replace")
