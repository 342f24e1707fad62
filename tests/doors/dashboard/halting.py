"""A model that stops in the middle of its answer until a test has looked at that."""

import contextlib
import json
import threading
from collections.abc import Iterator

from fixtures.fake_openai import FakeOpenAI, Handler
from fixtures.fake_openai_plan import Plan

_PIECES = [f"piece {number} " for number in range(40)]
WHOLE = "".join(_PIECES).strip()


def agent_settings(folder: object, url: str) -> str:
    """The settings of an agent, after its table's name, that works in the folder and asks the model at ``url``."""
    model = f'provider = "openai"\nmodel = "gpt-4.1-mini"\nbase_url = "{url}"\nenv = {{ OPENAI_API_KEY = "none" }}'
    return f'workspace = "{folder}"\n{model}\n'


class HaltingModel(FakeOpenAI):
    """Each answer stops after ``piece 19`` and after ``piece 29``, until ``go_on`` is released for it."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = _Speaker
        self.go_on = threading.Semaphore(0)

    def agent(self, folder: str) -> str:
        """The table of the agent ``halting``, who asks it."""
        return f"[agents.halting]\n{agent_settings(folder, self.url)}"


class _Speaker(Handler):
    server: HaltingModel

    def do_POST(self) -> None:  # noqa: N802  # the name that the server calls
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.stream(body, Plan(pieces=_Pieces(self.server.go_on)), "")


class _Pieces(list[str]):
    def __init__(self, go_on: threading.Semaphore) -> None:
        super().__init__(_PIECES)
        self._go_on = go_on

    def __iter__(self) -> Iterator[str]:
        for number, piece in enumerate(_PIECES):
            if number in (20, 30):
                self._go_on.acquire()
            yield piece


@contextlib.contextmanager
def running_model() -> Iterator[HaltingModel]:
    model = HaltingModel()
    thread = threading.Thread(target=model.serve_forever)
    thread.start()
    try:
        yield model
    finally:
        model.shutdown()
        thread.join()
        model.server_close()
