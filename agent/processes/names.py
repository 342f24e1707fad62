"""Names of background commands: two words that a person and a model can say and tell apart."""

import random
from collections.abc import Callable, Container, Sequence

__all__ = ["new_name"]

# Words, not a column of literals:
# fmt: off
_ADJECTIVES = (
    "amber", "brave", "brisk", "calm", "clear", "cool", "crisp", "dawn", "deep", "eager", "early", "fast", "fine",
    "fresh", "gentle", "glad", "gold", "grand", "green", "happy", "keen", "kind", "late", "light", "lucky", "mellow",
    "mild", "misty", "neat", "nimble", "noble", "plain", "proud", "quick", "quiet", "rapid", "ready", "salty",
    "sharp", "silent", "silver", "smart", "snowy", "soft", "solar", "spare", "steady", "still", "sunny", "swift",
    "tidal", "tidy", "vivid", "warm", "wild", "wise", "young", "zesty",
)
_NOUNS = (
    "acorn", "badger", "beacon", "birch", "bison", "brook", "cedar", "cliff", "cloud", "comet", "coral", "crane",
    "creek", "delta", "dune", "eagle", "ember", "falcon", "fern", "fjord", "forest", "fox", "glade", "grove",
    "harbor", "hawk", "heron", "island", "ivy", "lagoon", "lake", "larch", "lark", "lynx", "maple", "marsh",
    "meadow", "moss", "nest", "oak", "ocean", "orchid", "otter", "owl", "pine", "pond", "prairie", "raven", "reef",
    "ridge", "river", "robin", "seal", "shore", "spruce", "stork", "summit", "tiger", "tulip", "valley", "walnut",
    "willow", "wren",
)
# fmt: on
_ATTEMPTS = 20


def new_name(taken: Container[str], choose: Callable[[Sequence[str]], str] = random.choice) -> str:
    """A name that is not taken, ``adjective-noun``; with a number behind it when chance finds no free pair."""
    name = ""
    for _ in range(_ATTEMPTS):
        name = f"{choose(_ADJECTIVES)}-{choose(_NOUNS)}"
        if name not in taken:
            return name
    number = 2
    while f"{name}-{number}" in taken:
        number += 1
    return f"{name}-{number}"
