"""Tells by its name whether an environment variable holds a secret, whose value is hidden in texts. Pure.

Other values, such as ``production`` of ``MODE``, stay: error messages need them.
"""

import re
from collections.abc import Collection, Iterable

__all__ = ["names_a_secret_variable", "secret_values"]

_SECRET = re.compile(
    r"KEY|TOKEN|SECRET|PASSW|PASSPHRASE|CREDENTIAL|COOKIE|(?:^|_)(?:PASS|PAT|PIN|AUTH|AUTHORIZATION)(?:_|$)|_PWD$",
    re.IGNORECASE,
)
_PLACE = re.compile(r"_(?:DIR|FILE|PATH|HOME)$", re.IGNORECASE)
"""Names that end so hold the place of a secret, not its value."""
_PASSWORD_IN_URL = re.compile(r"://[^/@\s]*:[^/@\s]+@")


def names_a_secret_variable(name: str) -> bool:
    """Whether a variable of this name holds a secret."""
    return _SECRET.search(name) is not None and _PLACE.search(name) is None


def secret_values(variables: Iterable[tuple[str, str]], marked: Collection[str] = ()) -> tuple[str, ...]:
    """The secret values: by the variable's name, because it is ``marked``, or as a URL with a password."""
    return tuple(
        value
        for name, value in variables
        if name in marked or names_a_secret_variable(name) or _PASSWORD_IN_URL.search(value)
    )
