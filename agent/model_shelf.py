"""The models that a worker has opened: each once, all closed at its end."""

from collections.abc import Callable

from agent.models.base import Model

__all__ = ["ModelShelf"]


class ModelShelf:
    """``open_model`` takes provider and name, each None for the default; it raises UnknownModel."""

    def __init__(self, open_model: Callable[[str | None, str | None], Model]) -> None:
        self._open_model = open_model
        self._opened: dict[tuple[str, str], Model] = {}

    def open(self, provider: str | None, name: str | None) -> Model:
        """The model; the same one when asked again. Raises UnknownModel."""
        model = self._open_model(provider, name)
        return self._opened.setdefault((model.provider, model.name), model)

    async def aclose(self) -> None:
        """Close what they hold open."""
        for model in self._opened.values():
            await model.aclose()
