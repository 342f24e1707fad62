"""Which variables of an environment hold a secret, by their names: their values are hidden in texts. Pure.

Other values, ``production`` of ``MODE`` say, are words that errors need.
"""

import re
from collections.abc import Collection, Iterable

__all__ = ["names_a_secret_variable", "secret_values"]

_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(?:^|_)(?:PASS|PAT|PIN|AUTH|AUTHORIZATION)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
_PLACE = re.compile(r"_(?:DIR|FILE|PATH|HOME)$", re.IGNORECASE)
"""What ends so says where a secret lies, not what it is."""
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def names_a_secret_variable(name: str) -> bool:
    """Whether the value of a variable called so is a secret."""
    return _SECRET.search(name) is not None and _PLACE.search(name) is None


def secret_values(variables: Iterable[tuple[str, str]], marked: Collection[str] = ()) -> tuple[str, ...]:
    """The values that are secret: by their variable's name, as an address with a password, or because it is marked."""
    return tuple(
        value
        for name, value in variables
        if name in marked or names_a_secret_variable(name) or _PASSWORD_IN_URL.search(value)
    )
