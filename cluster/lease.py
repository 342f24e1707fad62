"""The lease of a node, as the node holds it: until when its workers may run. Pure.

All times are of ``CLOCK_BOOTTIME``, in seconds: it runs on while the machine is suspended.
"""

from collections import OrderedDict

_MAX_PINGS = 64  # unanswered ones that are remembered, with one a second; the answer to an older one extends nothing


class NodeLease:
    """Runs from the sending of the last ping that was answered, not from the arrival of the answer.

    The supervisor counts from when it answered, which is later: it never takes a node's lease for ended before the node
    does. HELLO is the first ping, WELCOME its answer.
    """

    def __init__(self, seconds: float, *, hello_sent: float) -> None:
        self._seconds = seconds
        self._sent: OrderedDict[int, float] = OrderedDict()
        self._seq = 0
        self.ends_at = hello_sent + seconds

    def ping(self, now: float) -> int:
        """A ping is sent; its number."""
        self._seq += 1
        self._sent[self._seq] = now
        if len(self._sent) > _MAX_PINGS:
            self._sent.popitem(last=False)
        return self._seq

    def sent_at(self, seq: int) -> float | None:
        """When the ping of that number was sent, which was not answered yet."""
        return self._sent.get(seq)

    def answered(self, seq: int) -> bool:
        """A ping was answered; whether that extends the lease. Unknown and older ones do not."""
        sent = self._sent.pop(seq, None)
        if sent is None or sent + self._seconds <= self.ends_at:
            return False
        self.ends_at = sent + self._seconds
        return True

    def has_ended(self, now: float) -> bool:
        """Whether no worker may run any more."""
        return now >= self.ends_at
