"""``GET /metrics``: the pool's figures in the text format that Prometheus reads."""

from collections.abc import Sequence

from doors.http.openings import Opening
from doors.http.services import Services

__all__ = ["routes"]


def routes(_services: Services) -> Sequence[Opening]:
    """The one opening."""
    return []
