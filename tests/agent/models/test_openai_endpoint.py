"""Where the server is, and that the key shows nowhere."""

import pytest

from agent.models.base import Model
from agent.models.catalogue import ModelUnavailable, open_model
from agent.models.openai_endpoint import EndpointError, Secret, read_endpoint
from agent.models.openai_messages import CompatFlags
from agent.models.scripted import ProcessFaults

NO_FAULTS = ProcessFaults(lambda _: None)
KEY = "sk-very-secret"


@pytest.mark.parametrize(
    ("flag", "environment", "url", "origin"),
    [
        (None, {}, "https://api.openai.com/v1/chat/completions", "api.openai.com"),
        (None, {"OPENAI_BASE_URL": "http://localhost:1/v1/"}, "http://localhost:1/v1/chat/completions", "localhost:1"),
        ("http://[::1]:8/x", {"OPENAI_BASE_URL": "http://no"}, "http://[::1]:8/x/chat/completions", "[::1]:8"),
        (None, {"OPENAI_BASE_URL": ""}, "https://api.openai.com/v1/chat/completions", "api.openai.com"),
    ],
)
def test_the_flag_goes_before_the_environment_before_the_default(
    flag: str | None, environment: dict[str, str], url: str, origin: str
) -> None:
    endpoint = read_endpoint(flag, environment)
    assert (endpoint.url, endpoint.origin, endpoint.encrypted) == (url, origin, url.startswith("https"))


@pytest.mark.parametrize(
    "url",
    ["ftp://host", "host/v1", "http://", "http://host:port", "http://h\u00f6st", "http://host/?a=1", "http://[::1"],
)
def test_an_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(EndpointError, match="base URL"):
        read_endpoint(url, {})


def test_a_secret_in_the_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(EndpointError, match="OPENAI_API_KEY") as failure:
        read_endpoint(f"https://me:{KEY}@host", {})
    assert KEY not in str(failure.value)


@pytest.mark.parametrize(
    ("environment", "hint"),
    [
        ({}, "no key was sent: set OPENAI_API_KEY"),
        ({"OPENAI_API_KEY": KEY}, "check the key in OPENAI_API_KEY"),
        (
            {"POOL_WORKER_ID": "i:w1"},
            "no key was sent: set OPENAI_API_KEY in [agents.NAME.env] of the pool's settings",
        ),
        (
            {"POOL_WORKER_ID": "i:w1", "OPENAI_API_KEY": KEY},
            "check the key in OPENAI_API_KEY in [agents.NAME.env] of the pool's settings",
        ),
    ],
)
def test_what_to_do_about_the_key_depends_on_where_the_agent_runs(environment: dict[str, str], hint: str) -> None:
    assert read_endpoint(None, environment).key_hint == hint


def test_quirks_are_named_and_unknown_ones_refused() -> None:
    environment = {"OPENAI_COMPAT": "no-images, strict-roles,,no-reasoning-effort,no-stream-options,no-answer-options"}
    assert read_endpoint(None, environment).compat == CompatFlags(
        images=False, strict_roles=True, reasoning_effort=False, stream_options=False, answer_options=False
    )
    assert read_endpoint(None, {}).compat == CompatFlags()
    with pytest.raises(EndpointError, match="it knows: no-images"):
        read_endpoint(None, {"OPENAI_COMPAT": "images"})


def test_a_key_shows_itself_only_when_asked() -> None:
    endpoint = read_endpoint(None, {"OPENAI_API_KEY": f" {KEY}\n"})
    assert endpoint.key.value() == KEY
    assert KEY not in f"{endpoint} {endpoint!r} {endpoint.key} {[endpoint.key]}"
    assert endpoint.key.redact(f"wrong key {KEY}!") == "wrong key ***!"
    assert Secret("").redact("abc") == "abc"


@pytest.mark.parametrize("key", ["a\nb", "k\u00e9y", "a\x00b"])
def test_a_key_that_no_header_carries_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(EndpointError, match="OPENAI_API_KEY") as failure:
        read_endpoint(None, {"OPENAI_API_KEY": key})
    assert key not in str(failure.value)


@pytest.mark.parametrize(
    ("provider", "model", "name"),
    [("openai", "m", "m"), (None, "openai/m", "m"), ("openai", "org/m", "org/m"), (None, "openai/org/m", "org/m")],
)
def test_any_model_of_a_server_is_opened_by_name(provider: str | None, model: str, name: str) -> None:
    opened: Model = open_model(provider, model, NO_FAULTS, environment={})
    assert (opened.provider, opened.name) == ("openai", name)


@pytest.mark.parametrize(
    ("model", "more", "message"),
    [
        (None, {}, "name one with --model"),
        ("m", {"base_url": "nowhere"}, "base URL"),
        ("m", {"environment": {"OPENAI_COMPAT": "x"}}, "OPENAI_COMPAT"),
        ("m", {"offline": True}, "--offline"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_at_once(
    model: str | None, more: dict[str, object], message: str
) -> None:
    with pytest.raises(ModelUnavailable, match=message):
        open_model("openai", model, NO_FAULTS, **{"environment": {}, **more})  # type: ignore[arg-type]  # a table's rows
