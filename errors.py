"""The error root: every failure the project raises on purpose, sorted by whose fault it is.

Foreign errors are translated into one of these at one edge (``raise ... from exc``). Each class has a stable
``code`` which the control socket, the CLI and the docs share; the code outlives any rewording of the message.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar


class PoolError(Exception):
    """Root of all errors of the project.

    Attributes:
        code: stable machine-readable name of the kind of failure.
        message: one sentence for a person: what failed, where, what to do.
        details: further facts by name, JSON-encodable: ``retry_after`` (seconds), ``worker`` and ``session`` ids,
            ``stderr_tail`` (last text a worker wrote to stderr), ``figures`` (pool figures at that moment).
    """

    code: ClassVar[str] = "pool_error"

    def __init__(self, message: str, /, **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.details: dict[str, Any] = {key: value for key, value in details.items() if value is not None}

    def __str__(self) -> str:
        return self.message

    @property
    def retry_after(self) -> float | None:
        """Seconds after which the same call may succeed, where the pool can tell."""
        return self.details.get("retry_after")

    @property
    def stderr_tail(self) -> str | None:
        """The end of the worker's stderr, where a worker is to blame."""
        return self.details.get("stderr_tail")


class NoSupervisor(PoolError):
    """No supervisor answers at the control socket."""

    code = "no_supervisor"


class UsageError(PoolError):
    """The caller's fault: a bad argument, an unknown session, worker, agent or method."""

    code = "usage"


class SettingsRefused(UsageError):
    """The settings cannot be used. Known to every client: it ends with the same exit code whatever it has imported."""

    code = "settings"


class Conflict(PoolError):
    """Things are not so: an idempotency key stands for another request already, no turn runs that could be steered."""

    code = "conflict"


class ProtocolViolation(PoolError):
    """The worker's fault: it broke the protocol in a way that cannot be passed over."""

    code = "protocol_violation"


class WorkerError(PoolError):
    """Something went wrong with one worker process."""

    code = "worker_error"


class WorkerStartFailed(WorkerError):
    """The worker could not be started or never became ready; ``stderr_tail`` says why."""

    code = "worker_start_failed"


class WorkerExited(WorkerError):
    """The worker's process ended while a request was pending.

    ``details["sent"]`` is False when no byte of the request had entered the worker's pipe: it may be sent again.
    """

    code = "worker_exited"

    @property
    def sent(self) -> bool:
        """Whether any byte of the failed request reached the worker's stdin."""
        return bool(self.details.get("sent", True))


class WorkerStalled(WorkerError):
    """The worker lives but answers no ping, or its turn has been silent for too long."""

    code = "worker_stalled"


class WorkerRefused(WorkerError):
    """The worker answered the request with an error of its own; ``details["worker_code"]`` is the worker's code."""

    code = "worker_refused"


class RequestTimeout(WorkerError):
    """One request was not answered within its deadline; the worker may still be alive."""

    code = "request_timeout"


class ResumeFailed(WorkerError):
    """A session's transcript could not be resumed; it was set aside and the session can be reset."""

    code = "resume_failed"


class RunAborted(PoolError):
    """The run was ended before it came to an outcome."""

    code = "aborted"


class RunCutShort(PoolError):
    """A run ended before the agent was done: after ``max_steps`` model calls, or at the model's output limit."""

    code = "run_cut_short"


class RunInterrupted(PoolError):
    """The supervisor ended while the run was in its turn; how far it came is in the conversation."""

    code = "interrupted"


class SubscriberBehind(PoolError):
    """A reader of events was too slow and has been cut off; it can go on at ``bookmark``, where nothing is lost."""

    code = "behind"

    @property
    def bookmark(self) -> int:
        """The last seq that it has taken: what to resume with."""
        return int(self.details.get("bookmark", 0))


class PoolSaturated(PoolError):
    """The waiting list is full, or every worker is reserved for more important work."""

    code = "saturated"


class NestedSaturated(PoolSaturated):
    """A run whose ancestor holds a worker found none; it fails at once, since waiting could dead-lock."""

    code = "nested_saturated"


class NoWorker(PoolSaturated):
    """No running worker fits, and the request may not start one, although there is room."""

    code = "no_worker"


class AcquireTimeout(PoolError):
    """No worker became free within the caller's deadline."""

    code = "acquire_timeout"


class InternalError(PoolError):
    """A defect of the supervisor met while it served one request; its log has the traceback."""

    code = "internal"


class PoolClosed(PoolError):
    """The pool is closed, closing or draining and takes no new work."""

    code = "pool_closed"


class ProfileBroken(PoolError):
    """The profile's workers failed to start too often; ``stderr_tail`` holds what the last one said."""

    code = "profile_broken"


def _error_classes(root: type[PoolError]) -> list[type[PoolError]]:
    return [root, *(kind for child in root.__subclasses__() for kind in _error_classes(child))]


def error_from_wire(code: str, message: str, details: Mapping[str, Any] | None = None) -> PoolError:
    """Rebuild the error that crossed a door, so that a remote caller catches the same class as a local one.

    A subclass without a code of its own is one room's refinement and arrives as the class whose code it has.
    An unknown code becomes a plain ``PoolError`` that keeps the code in ``details["code"]``.
    """
    known = {kind.code: kind for kind in _error_classes(PoolError) if "code" in vars(kind)}
    fields = {str(key): value for key, value in (details or {}).items()}
    kind = known.get(code)
    if kind is None:
        return PoolError(message, **{**fields, "code": code})
    return kind(message, **fields)


@contextmanager
def unwrap_exception_groups() -> Iterator[None]:
    """Take a ``PoolError`` out of the exception groups of the nurseries in the block, and raise it by itself.

    Of several, the first is raised. Other exceptions (a defect, a cancellation) take precedence, in their group. A
    plain ``except``: before Python 3.11.4 an error raised inside ``except*`` is put into another group.
    """
    try:
        yield
    except BaseExceptionGroup as group:
        ours, others = group.split(PoolError)
        if others is not None:
            raise others from None
        raise _first_leaf(ours or group) from None


def _first_leaf(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error = group.exceptions[0]
    return _first_leaf(error) if isinstance(error, BaseExceptionGroup) else error


def single_cause(exc: BaseException) -> BaseException:
    """The one exception inside nested groups of one, as nurseries make them; their own text says nothing."""
    while isinstance(exc, BaseExceptionGroup) and len(exc.exceptions) == 1:
        exc = exc.exceptions[0]
    return exc
