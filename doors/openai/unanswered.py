"""Which conversations stand where they stood before their last run: it failed, or its client left without the answer.

Then ``previous_response_id`` may name the same response once more, as a client that tries again does. Pure; in memory
for one life of the supervisor.
"""

from typing import NamedTuple

__all__ = ["Unanswered"]

_MOST = 2000


class _Attempt(NamedTuple):
    """A run that no client has an answer of, and the run whose response it was to continue."""

    run: str
    continues: str


class Unanswered:
    """The latest attempt of each session, for the 2,000 sessions noted last."""

    def __init__(self) -> None:
        self._attempts: dict[str, _Attempt] = {}

    def note(self, session: str, run: str, continues: str) -> None:
        """The ``run`` was to continue the response of ``continues``, and its client has no answer."""
        self._attempts.pop(session, None)
        self._attempts[session] = _Attempt(run, continues)
        if len(self._attempts) > _MOST:
            del self._attempts[next(iter(self._attempts))]

    def stands_at(self, session: str, last_run: str | None, continues: str | None) -> bool:
        """Whether all that the session has begun since ``continues``, up to ``last_run``, was unanswered."""
        return self._attempts.get(session) == (last_run, continues)
