"""What a worker's program says of itself and of its conversation, in words. Pure: ``report`` of status documents."""

from collections.abc import Iterator, Sequence
from typing import Any

from commands.event_text import resumption_text
from commands.layout import Column
from wire.terminal import clean, format_count

Record = dict[str, Any]


def report_columns(workers: Sequence[Record]) -> list[Column]:
    """Columns for the table of workers; none where no program says anything."""
    if not any(worker.get("report") for worker in workers):
        return []
    return [
        Column("CONTEXT", lambda w: _context(w.get("report") or {}, "/"), right=True, optional=7),
        Column("MODEL", lambda w: _said(w, "model"), stretches=True, optional=8),
        Column("MODE", lambda w: _said(w, "mode"), stretches=True, optional=9),
        Column("PROGRAM", lambda w: _program(w.get("report") or {}), stretches=True, optional=10),
    ]


def report_rows(report: Record) -> Iterator[tuple[str, str]]:
    """What there is to say of one worker's program and the conversation that it has open: names and texts."""
    for name, text in (
        ("program", _program(report)),
        ("can", clean(" ".join(report.get("capabilities", ())))),
        ("options", clean(" ".join(report.get("options", ())))),
        ("model", clean(report.get("model"))),
        ("mode", clean(report.get("mode"))),
        ("context", _context(report, " of ")),
        ("strategy", _strategy(report.get("strategy"))),
    ):
        if text not in ("", "-"):
            yield name, text


def _said(worker: Record, name: str) -> str:
    return clean((worker.get("report") or {}).get(name))


def _program(report: Record) -> str:
    return clean(f"{report.get('program', '')} {report.get('version', '')}".strip() or None)


def _context(report: Record, between: str) -> str:
    context = report.get("context")
    return between.join(format_count(context[name]) for name in ("used", "size")) if context else "-"


def _strategy(strategy: str | None) -> str:
    return clean(f"{strategy}: {resumption_text(strategy)}") if strategy else ""
