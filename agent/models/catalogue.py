"""Which models there are, and how one is opened by name."""

from agent.models.base import Model
from agent.models.scripted import Faults, ScriptedModel

__all__ = ["MODELS", "UnknownModel", "open_model"]

MODELS: dict[str, tuple[str, ...]] = {"scripted": ("scripted", "scripted-small", "scripted-large")}
"""Provider to its models, the default first. All of these work offline."""


class UnknownModel(ValueError):
    """No provider or model of that name; the message lists what there is."""


def open_model(provider: str | None, model: str | None, faults: Faults) -> Model:
    """Open a model by provider and name, by name alone, or by ``provider/name``."""
    if model is not None and provider is None and "/" in model:
        provider, model = model.split("/", 1)
    provider = provider or _provider_of(model)
    if provider not in MODELS:
        raise UnknownModel(f"unknown provider {provider!r}; there is: {', '.join(MODELS)}")
    name = model or MODELS[provider][0]
    if name not in MODELS[provider]:
        raise UnknownModel(f"unknown model {name!r} of provider {provider!r}; there is: {', '.join(MODELS[provider])}")
    return ScriptedModel(name, faults)


def _provider_of(model: str | None) -> str:
    for provider, names in MODELS.items():
        if model is None or model in names:
            return provider
    return next(iter(MODELS))
