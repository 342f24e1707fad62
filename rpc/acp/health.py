"""Whether an ACP agent is alive: it has no ping, but any answer to an unknown request is a sign of life."""

from rpc.acp.link import TIMED_OUT, AcpLink, AcpRequest
from rpc.acp.messages import AcpAnswer

PING_METHOD = "_pool/ping"
_TRIAL_SECONDS = 2.0


class PingCheck:
    """One per dialect. ``answers``: whether the agent answers; None as long as that is being found out."""

    def __init__(self, link: AcpLink) -> None:
        self._link = link
        self.answers: bool | None = None

    def try_out(self) -> None:
        """Ask for the first time: an agent that says nothing then is not asked again."""
        self._link.send(AcpRequest(PING_METHOD, {}, seconds=_TRIAL_SECONDS), self._learn)

    def _learn(self, answer: AcpAnswer) -> None:
        silent = answer.error is not None and answer.error.code is None and answer.error.message == TIMED_OUT
        self.answers = not silent

    def ping(self, request_id: str) -> None:
        """Answer a native ``ping`` with a sign of life; at once where the agent gives none: its process lives."""
        if self.answers is False:
            self._link.answer(request_id, {})
        else:
            self._link.send(AcpRequest(PING_METHOD, {}), lambda _answer: self._link.answer(request_id, {}))
