"""A client of a well-kept library against a real pool; ``acceptance/test_doors_together`` has it beside other doors."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.acceptance.front_ends import GatewaySocket, gateway_socket
from tests.acceptance.supervisor import running_supervisor
from tests.doors.http.peer import TOKEN

pytestmark = pytest.mark.process

SETTINGS = f"""
pool = {{ min = 0, max = 2 }}
http = {{ bind = "127.0.0.1:0", token = "{TOKEN}" }}
"""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("websocket")
    config = directory / "pool.toml"
    config.write_text(SETTINGS)
    with running_supervisor(directory / "data", "--config", str(config)) as supervisor:
        yield str(supervisor.status()["supervisor"]["http"]["url"])


def run(client: GatewaySocket, text: str, **params: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The last answer of a run, and the payloads of its events."""
    last = client.answer(client.ask("agent", message=text, **params), 2)
    client.until("chat", lambda chat: (chat["runId"], chat["state"]) == (last["runId"], "final"))
    payloads = [event["payload"] for event in client.events if event["event"] in ("agent", "chat")]
    return last, [payload for payload in payloads if payload["runId"] == last["runId"]]


@pytest.mark.parametrize("protocol", [3, 4])
def test_an_answer_streams_in_both_versions(url: str, protocol: int) -> None:
    with gateway_socket(url, TOKEN, protocol) as client:
        whole = "".join(f"piece {number} " for number in range(5))
        last, events = run(client, "PIECES=5 DELAY=40", sessionKey=f"s{protocol}", idempotencyKey=f"k{protocol}")
        assert (last["runId"], last["status"], last["result"]["payloads"]) == (f"k{protocol}", "ok", [{"text": whole}])
        texts = [each["data"] for each in events if each.get("stream") == "assistant"]
        assert "".join(text["delta"] for text in texts) == texts[-1]["text"] == whole
        assert [each["data"]["phase"] for each in events if each.get("stream") == "lifecycle"] == ["start", "end"]
        deltas = [each for each in events if each.get("state") == "delta"]
        assert all(("deltaText" in each) is (protocol == 4) for each in deltas)
        assert all(whole.startswith(each["message"]["content"][0]["text"]) for each in deltas)
        assert events[-1]["message"]["content"][0]["text"] == whole
        seqs = [event["seq"] for event in client.events if "seq" in event]
        assert seqs == list(range(1, len(seqs) + 1)), "nothing is missing"


@pytest.mark.parametrize(
    ("text", "is_error", "words"),
    [
        ('TOOL:exec {"command": "echo from the tool"}', False, "from the tool"),
        ('TOOL:read {"path": "missing.txt"}', True, "missing.txt"),
    ],
    ids=["succeeds", "fails"],
)
def test_a_tool_call_has_one_result_when_it(url: str, text: str, words: str, *, is_error: bool) -> None:
    with gateway_socket(url, TOKEN) as client:
        tools = [each["data"] for each in run(client, text)[1] if each.get("stream") == "tool"]
        (result,) = [each for each in tools if each["phase"] == "result"]
        assert (result["isError"], words in result["result"]) == (is_error, True)


def test_a_prompt_of_five_megabytes_and_every_line_end_arrive_and_figures_count_the_sockets(url: str) -> None:
    with gateway_socket(url, TOKEN) as client:
        said = "one\u2028two\u2029three\x85four\r\nfive"
        assert run(client, f"ECHO:{said}", sessionKey="lines")[0]["result"]["payloads"][0]["text"] == said
        assert run(client, "x" * 5_000_000, sessionKey="large")[0]["status"] == "ok"
        text = ""
        while "pool_http_sockets 1.0" not in text:  # those of the tests before may not be closed yet
            text = httpx.get(f"{url}/metrics", headers={"authorization": f"Bearer {TOKEN}"}, timeout=20).text
    for figure in ("sockets_slow_total", "socket_events_dropped_total"):
        assert f"pool_http_{figure} 0.0" in text
