"""Units that people write in settings and on the command line: ``30s``, ``5m``, ``64MiB``.

In code a time is a float of seconds and a size an int of bytes; ``Seconds`` and ``ByteCount`` are those numbers with
a spelling, so that a settings struct can name its unit in its type.
"""

import re
from typing import Annotated, Any, Self

import msgspec

_TIME_FACTORS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_FACTORS = {"B": 1, "KB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
_NUMBER_AND_UNIT = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")
_MAX_SECONDS = 100 * 365 * 86400.0


class Seconds(float):
    """A time span in seconds, written ``"500ms"``, ``"30s"``, ``"5m"``, ``"2h"``, ``"1d"`` or a bare number."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str | float) -> Self:
        """Read a time span; raises ValueError that shows the accepted spelling."""
        if isinstance(text, int | float) and not isinstance(text, bool):
            value = float(text)
        else:
            value = _parse(str(text), _TIME_FACTORS, default_unit="s", example='"30s", "5m" or "500ms"')
        if not 0 <= value <= _MAX_SECONDS:
            msg = f"{text!r} is no time span between 0 and 100 years"
            raise ValueError(msg)
        return cls(value)

    def __repr__(self) -> str:
        return f"{float(self):g}s"


class ByteCount(int):
    """A size in bytes, written ``"64MiB"``, ``"10MB"`` or a bare number of bytes."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str | int) -> Self:
        """Read a size; raises ValueError that shows the accepted spelling."""
        if isinstance(text, int) and not isinstance(text, bool):
            value = float(text)
        else:
            value = _parse(str(text), _SIZE_FACTORS, default_unit="B", example='"64MiB" or "10MB"')
        if not 0 <= value < 2**63:
            msg = f"{text!r} is no size in bytes"
            raise ValueError(msg)
        return cls(value)

    def __repr__(self) -> str:
        return f"{int(self)}B"


PositiveInt = Annotated[int, msgspec.Meta(ge=1)]
NonNegativeInt = Annotated[int, msgspec.Meta(ge=0)]
PositiveFloat = Annotated[float, msgspec.Meta(extra={"above": 0})]
PositiveSeconds = Annotated[Seconds, msgspec.Meta(extra={"above": 0})]
AtLeastKiB = Annotated[ByteCount, msgspec.Meta(extra={"least": 1024})]
AtLeast64KiB = Annotated[ByteCount, msgspec.Meta(extra={"least": 64 * 1024})]
"""Numbers with a bound. msgspec checks those of int, ``settings.problems`` those in ``extra``."""


def _parse(text: str, factors: dict[str, Any], *, default_unit: str, example: str) -> float:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    factor = factors.get(match[2] or default_unit) if match else None
    if match is None or factor is None:
        msg = f"{text!r} is not understood; write for example {example}"
        raise ValueError(msg)
    return float(match[1]) * float(factor)


def decode_unit(kind: type, value: object) -> object:
    """``dec_hook`` for msgspec: decode the unit types of this module, refuse any other unknown type."""
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        if kind is Seconds:
            return Seconds.parse(value)
        if kind is ByteCount and not isinstance(value, float):
            return ByteCount.parse(value)
    example = 'a time such as "30s"' if kind is Seconds else 'a size such as "64MiB"'
    msg = f"expected {example}, got {value!r}"
    raise ValueError(msg)
