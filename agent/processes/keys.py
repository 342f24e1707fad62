"""Key names to what a terminal sends for them, in tmux's spelling: Enter, C-c, M-x, Up, F5, or a character."""

_NAMED = {
    "enter": "\r",
    "tab": "\t",
    "btab": "\x1b[Z",
    "space": " ",
    "escape": "\x1b",
    "esc": "\x1b",
    "backspace": "\x7f",
    "bspace": "\x7f",
    "up": "\x1b[A",
    "down": "\x1b[B",
    "right": "\x1b[C",
    "left": "\x1b[D",
    "home": "\x1b[H",
    "end": "\x1b[F",
    "insert": "\x1b[2~",
    "delete": "\x1b[3~",
    "pageup": "\x1b[5~",
    "pagedown": "\x1b[6~",
    "f1": "\x1bOP",
    "f2": "\x1bOQ",
    "f3": "\x1bOR",
    "f4": "\x1bOS",
    "f5": "\x1b[15~",
    "f6": "\x1b[17~",
    "f7": "\x1b[18~",
    "f8": "\x1b[19~",
    "f9": "\x1b[20~",
    "f10": "\x1b[21~",
    "f11": "\x1b[23~",
    "f12": "\x1b[24~",
}
_CONTROL = ("c-", "ctrl-", "ctrl+", "^")
_META = ("m-", "alt-", "alt+", "meta-")


class UnknownKey(ValueError):
    """An unknown key; the message names it."""


def encode_key(key: str) -> str:
    """What a terminal sends for the key. Raises UnknownKey."""
    name = key.lower()
    if len(key) == 1:
        return key
    if name in _NAMED:
        return _NAMED[name]
    for prefix in _CONTROL:
        if name.startswith(prefix) and name != prefix:
            return _with_control(name.removeprefix(prefix), key)
    for prefix in _META:
        if name.startswith(prefix) and name != prefix:
            return "\x1b" + encode_key(key[len(prefix) :])
    raise UnknownKey(f"there is no key {key!r}; use names such as Enter, C-c, Up, F5, or single characters")


def encode_paste(text: str, *, bracketed: bool) -> str:
    """A pasted text; bracketed, a program can distinguish it from typing, and nothing in it ends it early."""
    return f"\x1b[200~{text.replace(chr(27), '')}\x1b[201~" if bracketed else text


def _with_control(rest: str, key: str) -> str:
    if rest == "space":
        return "\x00"
    if rest == "?":
        return "\x7f"
    if len(rest) == 1 and "@" <= rest.upper() <= "_":
        return chr(ord(rest.upper()) & 0x1F)
    raise UnknownKey(f"there is no key {key!r}: control goes with a letter or one of @[\\]^_?")
