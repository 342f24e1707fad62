"""What a search says of all that it does not show; pure."""

from agent.tools.search.running import Outcome

__all__ = ["passed_over"]


def passed_over(outcome: Outcome, things: str) -> list[str]:
    """Lines for the end of the result; ``things`` are what was looked for."""
    end = outcome.end
    if end is None:
        return [
            f"[the search took too long and was stopped; there may be more {things}. Search less, or a simpler way.]"
        ]
    notes = []
    if end.matches > end.shown:
        more = "at least " if end.stopped_at is not None else ""
        files = f" in {end.files} files" if end.files else ""
        notes.append(
            f"[{end.shown} of {more}{end.matches} {things}{files} are shown; narrow the search, or set limit higher]"
        )
    elif end.stopped_at is not None:
        notes.append(f"[the time was up at {end.stopped_at}; what comes after it was not searched]")
    reasons = (
        (end.binary, "binary files"),
        (end.too_large, "files larger than 32 MiB"),
        (end.unreadable, "files or directories that cannot be read"),
        (end.too_deep, "directories more than 100 levels deep"),
        (0 if end.matches else end.ignored, "names that .gitignore leaves out (see include_ignored)"),
    )
    skipped = [f"{count} {what}" for count, what in reasons if count]
    if skipped:
        notes.append(f"[not searched: {', '.join(skipped)}]")
    return notes
