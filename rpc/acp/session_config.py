"""What an agent lets one set in a conversation, and what is set: options, modes and models, as it last said. Pure."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import msgspec

from rpc.acp.bounds import value_of
from rpc.acp.messages import objects_of

Value = str | bool
_MAX_OPTIONS = 32
_MAX_CHOICES = 2_048
"""Of one option, or modes or models. What is longer than a word cannot be chosen."""


class ConfigOption(msgspec.Struct, frozen=True):
    """One option. ``choices``: the values it takes; ``is_boolean``: it takes true and false instead."""

    id: str
    category: str = ""
    is_boolean: bool = False
    value: Value | None = None
    choices: tuple[str, ...] = ()


class Selection(msgspec.Struct, frozen=True):
    """A list of modes or models in the older form, and which of them is current."""

    choices: tuple[str, ...] = ()
    current: str | None = None


class SessionConfig(msgspec.Struct, frozen=True):
    """All of it; an absent list is None."""

    options: tuple[ConfigOption, ...] = ()
    modes: Selection | None = None
    models: Selection | None = None

    def option(self, *names: str) -> ConfigOption | None:
        """The option with one of these ids, else the first of such a category."""
        found = next((option for name in names for option in self.options if option.id == name), None)
        return found or next((option for option in self.options if option.category in names), None)

    @property
    def mode(self) -> str | None:
        """The current mode."""
        return _current(self.option("mode"), self.modes)

    @property
    def model(self) -> str | None:
        """The current model."""
        return _current(self.option("model"), self.models)

    @property
    def thinking(self) -> str | None:
        """How hard it thinks."""
        return _current(self.option(*THINKING_NAMES), None)

    @property
    def thinking_levels(self) -> list[str]:
        """How hard it can be made to think."""
        return _choices_of(self.option(*THINKING_NAMES), None)

    def offers_model(self, model: str) -> bool:
        """Whether a model of that id can be chosen."""
        return model in _choices_of(self.option("model"), self.models)

    def offered(self) -> dict[str, list[str]]:
        """Ids of all that can be set: ``options``, ``modes``, ``models``."""
        return {
            "options": [option.id for option in self.options],
            "modes": _choices_of(self.option("mode"), self.modes),
            "models": _choices_of(self.option("model"), self.models),
        }

    def with_options(self, value: object) -> "SessionConfig":
        """The same with the whole list of options as the agent now gives it; what is no list changes nothing."""
        if not isinstance(value, list):
            return self
        return msgspec.structs.replace(
            self, options=tuple(islice(filter(None, map(_read_option, objects_of(value))), _MAX_OPTIONS))
        )

    def with_value(self, option_id: str, value: Value) -> "SessionConfig":
        """The same with another value of an option."""
        options = [
            msgspec.structs.replace(option, value=value) if option.id == option_id else option
            for option in self.options
        ]
        return msgspec.structs.replace(self, options=tuple(options))

    def with_mode(self, mode: str | None) -> "SessionConfig":
        """The same in another mode."""
        if mode is None:
            return self
        modes = msgspec.structs.replace(self.modes or Selection(), current=mode)
        option = self.option("mode")
        changed = msgspec.structs.replace(self, modes=modes)
        return changed if option is None else changed.with_value(option.id, mode)

    def with_model(self, model: str) -> "SessionConfig":
        """The same with another model."""
        return msgspec.structs.replace(self, models=msgspec.structs.replace(self.models or Selection(), current=model))


THINKING_NAMES = ("thought_level", "thinking", "effort", "reasoning_effort")


def read_config(result: dict[str, Any]) -> SessionConfig:
    """What the answer to ``session/new``, ``session/load`` or ``session/resume`` offers."""
    return SessionConfig(
        modes=_read_selection(result.get("modes"), "availableModes", "id", "currentModeId"),
        models=_read_selection(result.get("models"), "availableModels", "modelId", "currentModelId"),
    ).with_options(result.get("configOptions"))


def _current(option: ConfigOption | None, selection: Selection | None) -> str | None:
    if option is not None:
        return option.value if isinstance(option.value, str) else None
    return selection.current if selection else None


def _choices_of(option: ConfigOption | None, selection: Selection | None) -> list[str]:
    return list(option.choices if option is not None else selection.choices if selection else ())


def _read_selection(value: object, entries: str, identity: str, current: str) -> Selection | None:
    if not isinstance(value, dict):
        return None
    ids = (value_of(entry.get(identity)) for entry in objects_of(value.get(entries)))
    return Selection(tuple(islice(filter(None, ids), _MAX_CHOICES)), value_of(value.get(current)))


def _read_option(entry: dict[str, Any]) -> ConfigOption | None:
    option_id, value = value_of(entry.get("id")), entry.get("currentValue")
    if option_id is None:
        return None
    return ConfigOption(
        id=option_id,
        category=value_of(entry.get("category")) or "",
        is_boolean=entry.get("type") == "boolean",
        value=value if isinstance(value, bool) else value_of(value),
        choices=tuple(islice(_choices(entry.get("options")), _MAX_CHOICES)),
    )


def _choices(options: object) -> Iterator[str]:
    """The values of a select, and those of its groups."""
    for entry in objects_of(options):
        for choice in (entry, *objects_of(entry.get("options"))):
            value = value_of(choice.get("value"))
            if value is not None:
                yield value
