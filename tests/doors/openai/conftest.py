"""What the tests with the official client share: a real ``pool run`` with an HTTP port, and clients of it."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI
from pydantic import BaseModel

from doors.openai.session_ref import OWN_SESSION, is_stored
from fixtures.fake_openai import FakeOpenAI, serving
from tests.acceptance.supervisor import Supervisor, running_supervisor
from tests.doors.http.conftest import connect, open_door, world

__all__ = ["Ask", "Pool", "connect", "open_door", "running_pool", "text_of", "wait_until_forgotten", "world"]

TOKEN = "a-token-of-the-tests-0123456789"
READER = "a-token-that-may-look-0123456789"
BONN = '{"city":"Bonn","people":337000}'
CALL = 'TOOL:weather {"city": "Bonn"} TELL'
SKY: dict[str, Any] = {
    "name": "weather",
    "description": "Look at the sky.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
"""A function of the client, whose call is ``CALL``."""
SETTINGS = f"""
pool = {{ min = 0, max = 2 }}
gateway.queue = {{ cap = 1, overflow = "new" }}
[http]
bind = "127.0.0.1:0"
token = "{TOKEN}"
tokens.reader.token = "{READER}"
[agents.ops]
append_system_prompt = "Operate."
[agents.quick]
timeout_seconds = 0.5
[agents.fake]
provider = "openai"
model = "fake-1"
env = {{ OPENAI_BASE_URL = "URL_OF_THE_FAKE", OPENAI_API_KEY = "sk-of-the-fake-server" }}
[agents.p]
dialect = "pi"
command = ["/nowhere/pi"]
"""


class City(BaseModel):
    city: str
    people: int


class Pool:
    """A supervisor, and where its HTTP port is."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self.url = str(supervisor.status()["supervisor"]["http"]["url"])

    def client(self, token: str = TOKEN, **options: Any) -> OpenAI:
        """The official client, which tries nothing twice unless it is asked to."""
        return OpenAI(base_url=f"{self.url}/v1", api_key=token, **{"max_retries": 0, "timeout": 20, **options})

    def sessions(self) -> list[str]:
        return [session["key"] for session in self.call("sessions.list")]

    def call(self, method: str, **params: Any) -> Any:
        """What the method answers over HTTP."""
        with self.client() as client:
            return client.post(f"{self.url}/api/{method}", body=params, cast_to=object)

    def user_texts(self, session: str) -> list[str]:
        """What the session was asked."""
        history = self.call("sessions.history", session=session)["messages"]
        return [message["content"][0]["text"] for message in history if message["role"] == "user"]


def text_of(answer: Any) -> str:
    """All that an answer says, or the chunks of a stream."""
    if hasattr(answer, "choices"):
        return str(answer.choices[0].message.content)
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer if chunk.choices)


def wait_until_forgotten(pool: Pool) -> None:
    """Until no session of this door's own is left but those that are kept for another response."""
    while any(OWN_SESSION.fullmatch(key) and not is_stored(key) for key in pool.sessions()):
        pass


@contextmanager
def running_pool(directory: Path, settings: str = SETTINGS) -> Iterator[Pool]:
    (directory / "pool.toml").write_text(settings)
    with running_supervisor(directory / "data", "--config", str(directory / "pool.toml")) as supervisor:
        yield Pool(supervisor)


@pytest.fixture(scope="package")
def fake() -> Iterator[FakeOpenAI]:
    """The model server behind the agent ``fake``."""
    with serving() as server:
        yield server


@pytest.fixture(scope="package")
def pool(tmp_path_factory: pytest.TempPathFactory, fake: FakeOpenAI) -> Iterator[Pool]:
    """One for all tests that leave it as it was."""
    with running_pool(tmp_path_factory.mktemp("openai"), SETTINGS.replace("URL_OF_THE_FAKE", fake.url)) as running:
        yield running


@pytest.fixture
def client(pool: Pool) -> Iterator[OpenAI]:
    with pool.client() as opened:
        yield opened


@pytest.fixture
def session() -> str:
    return f"s-{uuid.uuid4().hex}"


Ask = Callable[..., Any]


@pytest.fixture
def ask(client: OpenAI) -> Ask:
    """Asks the bundled agent for a completion; a text, or messages."""

    def ask_it(messages: Any, **options: Any) -> Any:
        said = [{"role": "user", "content": messages}] if isinstance(messages, str) else messages
        return client.chat.completions.create(**{"model": "main", "messages": said, **options})

    return ask_it


@pytest.fixture
def respond(client: OpenAI) -> Ask:
    """Asks the bundled agent for a response."""

    def ask_it(given: Any, **options: Any) -> Any:
        return client.responses.create(**{"model": "main", "input": given, **options})

    return ask_it
