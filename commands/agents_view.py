"""Agent definitions on the terminal. Pure: listings in, renderables out."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from commands.agent_facts import AgentListing, MissingPart
from commands.layout import Column, make_table
from wire.terminal import clean

_LOGIN_STYLES = {"ok": "green", "found": "green", "wanted": "red", "none": "yellow"}
_RESUME_STYLES = {"yes": "green", "no": "yellow", "unknown": "dim"}


def agents_view(
    agents: Sequence[AgentListing], width: int, *, note: str = "", place: str = "", file: str = ""
) -> Group:
    """One line a definition, then what is missing with the lines to type; these are never cut; last the ``note``.

    ``place``: the options by which shown commands find the settings and the supervisor; ``file``: those of the settings
    alone.
    """
    records = [{"listing": agent} for agent in agents]
    columns = [
        Column("AGENT", lambda a: clean(a["listing"].name), stretches=True),
        Column("MAKE", lambda a: clean(a["listing"].make)),
        Column("VERSION", lambda a: clean(a["listing"].version or "-")),
        Column("RESUME", lambda a: Text(a["listing"].resume, _RESUME_STYLES.get(a["listing"].resume, ""))),
        Column("LOGIN", lambda a: Text(a["listing"].login, _LOGIN_STYLES.get(a["listing"].login, "dim"))),
        Column("DIALECT", lambda a: clean(a["listing"].dialect), optional=1),
        Column("CAN", lambda a: clean(" ".join(a["listing"].capabilities) or "-"), stretches=True, optional=2),
        Column("COMMAND", lambda a: clean(_shown_command(a["listing"])), stretches=True, optional=3),
    ]
    parts: list[RenderableType] = [make_table(columns, records, width, empty="no agents")]
    missing = [line for agent in agents for line in _missing_lines(agent, place, file)]
    parts += [Text(), *missing] if missing else []
    if note:
        parts += [Text(), Text(clean(note), "dim")]
    return Group(*parts)


def _shown_command(agent: AgentListing) -> str:
    return "-" if agent.make == "bundled" else " ".join(agent.command)


def lines_to_type(part: MissingPart, place: str, file: str) -> list[str]:
    """The commands about what is missing; those that change the settings take the options of ``file`` alone."""
    lines = [part.line, *([part.alternative] if part.alternative else [])]
    placed = [
        line if not line.startswith("pool ") else f"{line}{file if line.startswith('pool config ') else place}"
        for line in lines
    ]
    return [clean(line) if number == 0 else f"or: {clean(line)}" for number, line in enumerate(placed)]


def _missing_lines(agent: AgentListing, place: str, file: str) -> list[Text]:
    lines = []
    for part in agent.missing:
        lines.append(Text.assemble((f"{clean(agent.name)}: ", "bold"), (clean(part.what), "yellow")))
        lines += [Text(f"    {line}", no_wrap=True, overflow="ignore") for line in lines_to_type(part, place, file)]
    return lines
