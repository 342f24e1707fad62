"""The OpenAI door: ``/v1/models``, ``/v1/chat/completions`` and ``/v1/responses``: OpenAI's own clients work unchanged.

``model`` is an agent. ``X-Pool-Session`` or ``user`` names a session of the pool, which other doors may use at the same
time. A session remembers its conversation: of ``messages`` it is sent what stands behind the last one of the
assistant. One that has none yet is sent all of them in one text, and so is the session of its own that a request has
which names none; that one is forgotten afterwards, or, where the client is to carry out tools, when it has come back
with their results. ``Idempotency-Key`` names the run: the same request again gets the same answer.

``response_format``, ``tool_choice`` and ``stop`` go to the model server as parameters where it takes them, otherwise
into the prompt. The answer is checked in both cases: after one that does not fit, the agent is asked again, and then
the request fails with the code ``unfit_answer``. A stream of such an answer comes in one piece.

What an agent cannot do is refused where it would change the answer (``n``, ``logprobs``, ``modalities``); other
parameters are ignored and named in the header ``X-Pool-Ignored``. A whole answer is the agent's final text; a
stream also has what it says on the way to it.
"""
