"""Which models there are, how one is opened by name, and the cache of those that a worker has opened."""

import os
from collections.abc import Callable, Mapping

from agent.models.base import Model
from agent.models.scripted import ProcessFaults, ScriptedModel

MODELS: dict[str, tuple[str, ...]] = {"scripted": ("scripted", "scripted-small", "scripted-large"), "openai": ()}
"""Provider to its models, the default first; none are listed where any name may be one. The first provider is offline.
"""


class ModelUnavailable(ValueError):
    """No such provider or model, or one that cannot be used as things are set; the message says what there is."""


def open_model(
    provider: str | None,
    model: str | None,
    faults: ProcessFaults,
    *,
    base_url: str | None = None,
    environment: Mapping[str, str] | None = None,
    offline: bool = False,
) -> Model:
    """Open a model by provider and name, by name alone, or by ``provider/name``; connects to nothing yet.

    ``base_url`` and ``environment`` (default: this process's own) are for the provider openai, see
    ``agent.models.openai``; ``offline`` refuses it. Raises ModelUnavailable.
    """
    if model is not None and provider is None and "/" in model:
        provider, model = model.split("/", 1)
    provider = provider or next((each for each, names in MODELS.items() if model in names), next(iter(MODELS)))
    if provider not in MODELS:
        raise ModelUnavailable(f"unknown provider {provider!r}; there is: {', '.join(MODELS)}")
    if provider == "openai":
        if offline:
            raise ModelUnavailable("the provider openai needs the network, and --offline forbids it")
        return _open_openai(model, base_url, os.environ if environment is None else environment)
    name = model or MODELS[provider][0]
    if name not in MODELS[provider]:
        raise ModelUnavailable(
            f"unknown model {name!r} of provider {provider!r}; there is: {', '.join(MODELS[provider])}"
        )
    return ScriptedModel(name, faults)


def _open_openai(model: str | None, base_url: str | None, environment: Mapping[str, str]) -> Model:
    from agent.models.openai import OpenAIModel  # noqa: PLC0415 - the scripted model needs neither
    from agent.models.openai_endpoint import EndpointError, read_endpoint  # noqa: PLC0415

    if not model:
        raise ModelUnavailable("the provider openai has no default model: name one with --model")
    try:
        return OpenAIModel(model, read_endpoint(base_url, environment))
    except EndpointError as exc:
        raise ModelUnavailable(str(exc)) from exc


class ModelCache:
    """``open_model`` takes provider and name, each None for the default; it raises ModelUnavailable."""

    def __init__(self, open_model: Callable[[str | None, str | None], Model]) -> None:
        self._open_model = open_model
        self._opened: dict[tuple[str, str], Model] = {}

    def open(self, provider: str | None, name: str | None) -> Model:
        """The model; the same one when asked again. Raises ModelUnavailable."""
        model = self._open_model(provider, name)
        return self._opened.setdefault((model.provider, model.name), model)

    async def aclose(self) -> None:
        """Close what they hold open."""
        for model in self._opened.values():
            await model.aclose()
