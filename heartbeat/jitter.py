"""By how much an agent's interval differs from the one that is set, so that not all of them beat at once. Pure."""

from hashlib import blake2b

__all__ = ["jittered"]

_SHARE = 0.1


def jittered(every: float, agent: str) -> float:
    """The interval of this agent, in the unit of ``every``: within 10 % of it, and the same one each time."""
    number = int.from_bytes(blake2b(agent.encode("utf-8", "surrogatepass"), digest_size=8).digest())
    return every * (1 - _SHARE + 2 * _SHARE * number / (2**64 - 1))
