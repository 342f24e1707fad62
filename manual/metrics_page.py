"""The page of metrics, from what ``/metrics`` answers."""

import re
from collections.abc import Iterator

from manual.markdown import table

_INTRODUCTION = """# Metrics

`GET /metrics` answers in Prometheus' text format, or as OpenMetrics where that is asked for. It needs a token with
scope `read`. No figure has a session as its label.
"""
_HELP = re.compile(r"^# HELP (\S+) (.*)\n# TYPE \S+ (\S+)\n((?:[^#].*\n?)*)", re.MULTILINE)


def metrics_page(exposition: str) -> str:
    """The page."""
    return "\n".join([_INTRODUCTION, *table(("metric", "type", "labels", ""), _rows(exposition))])


def _rows(exposition: str) -> Iterator[tuple[str, str, str, str]]:
    for name, text, kind, samples in _HELP.findall(exposition):
        labels = dict.fromkeys(re.findall(r'(?<=[{,])(\w+)="', samples))
        if not name.endswith("_created"):
            yield (
                f"`{name}`",
                kind,
                ", ".join(f"`{label}`" for label in labels if label not in ("le", "quantile")),
                text,
            )
