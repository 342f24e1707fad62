"""Sessions of agents with ``resume = "pin"``: each keeps its worker while that lives, and how many may. Pure."""

from pool import rejections
from pool.records import ProfileRecord, SessionRecord, Waiter
from pool.state import PoolState
from pool.transitions import SessionState


class Dedication:
    """Admits sessions that are to keep a worker to themselves; at least one worker is left for all others.

    A session counts from its first request on, and as long as it has such a worker or a request for one: what has
    been admitted finds its place later.
    """

    def __init__(self, state: PoolState) -> None:
        self._state = state
        self._admitted: dict[SessionRecord, ProfileRecord] = {}

    def admit(self, waiter: Waiter) -> bool:
        """Whether the request may have a worker for its session alone, where it is to have one; False: refused."""
        session, kind = waiter.session, waiter.profile_record
        if not self.may_have(session, kind):
            named = rejections.KeepingSessions(tuple(each.key for each in self._admitted), len(self._admitted))
            state = self._state
            state.reject(waiter, rejections.all_dedicated(state.counts(), kind, state.retry_after, named))
            return False
        if kind.is_dedicated:
            self._admitted[session] = kind
        return True

    def may_have(self, session: SessionRecord | None, kind: ProfileRecord) -> bool:
        """Whether a request of the session would be admitted."""
        if not kind.is_dedicated:
            return True
        self._admitted = {each: of for each, of in self._admitted.items() if self._counts(each)}
        if session is not None and (session in self._admitted or _has_worker(session)):
            return True
        settings, kinds = self._state.settings, self._admitted.values()
        of_agent = sum(each.agent is kind.agent for each in kinds)
        return (
            len(kinds) < self._state.places.limit - 1
            and (not settings.max_per_agent or of_agent < settings.max_per_agent)
            and (not settings.max_per_profile or sum(each is kind for each in kinds) < settings.max_per_profile)
        )

    def _counts(self, session: SessionRecord) -> bool:
        if session.worker in self._state.dedicated and _has_worker(session):
            return True
        return any(waiter.profile_record.is_dedicated for waiter in session.waiting.values())

    def limit_changed(self) -> list[SessionRecord]:
        """Let the workers go that were used longest ago and are too many now; returns the sessions that had them."""
        state = self._state
        released = []
        while len(state.dedicated) > max(0, state.places.limit - 1):
            worker = next(iter(state.dedicated))
            del state.dedicated[worker]
            if worker.session is not None:
                released.append(worker.session)
        return released


def _has_worker(session: SessionRecord) -> bool:
    """Also one that it keeps no longer than any session does, because the limit was lowered."""
    return session.state is SessionState.ACTIVE
