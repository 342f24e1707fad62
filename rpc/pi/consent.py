"""A yes to extensions that ask before the pool gives pi another session; nothing else is ever agreed to.

The line of a question does not say what it is about. But pi that is not to change its session says so before it does
anything else. So each question is cancelled at first, and where pi then stays, the command is sent again with a yes to
exactly those questions; what is asked besides, once the new session begins, is cancelled as ever.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from rpc.pi.messages import PiUiResponse
from wire.messages import UiRequest

MAX_QUESTIONS = 8
"""Questions that are agreed to for one change of the session."""
_MAX_QUESTION_CHARS = 200
"""Characters of a question that count."""


class Consent:
    """One instance per dialect. ``refused`` are the questions of the last attempt that a yes could be given to.

    ``last`` is what was asked last and cancelled, for an error.
    """

    def __init__(self) -> None:
        self.refused: frozenset[str] = frozenset()
        self.last_question: str | None = None
        self._granted: frozenset[str] | None = None

    @contextmanager
    def granting(self, questions: frozenset[str]) -> Iterator[None]:
        """Until the end of the block agree to these questions and cancel all others."""
        self._granted, self.refused, self.last_question = questions, frozenset(), None
        try:
            yield
        finally:
            self._granted = None

    def answer(self, request: UiRequest) -> PiUiResponse | None:
        """The answer to an extension; None where the session is not being changed: a person may answer."""
        if self._granted is None:
            return None
        title, message = (str(request.fields.get(name, ""))[:_MAX_QUESTION_CHARS] for name in ("title", "message"))
        question = f"{title}\n{message}"
        if request.method == "confirm":
            if question in self._granted:
                return PiUiResponse(id=request.id, confirmed=True)
            if len(self.refused) < MAX_QUESTIONS:
                self.refused |= {question}
        self.last_question = title
        return PiUiResponse(id=request.id, cancelled=True)
