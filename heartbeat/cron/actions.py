"""What the cron machine decides: each is performed once, in the order given."""

import msgspec

from heartbeat.cron.jobs import CronJob
from heartbeat.cron.records import JobState, Outcome, Ticket

__all__ = ["Action", "Forget", "Keep", "Speak", "Start", "Tell"]


class Keep(msgspec.Struct, frozen=True):
    """Keep the job's state; a ``Start`` after it waits until that is durable."""

    job: str
    state: JobState


class Start(msgspec.Struct, frozen=True):
    """Run an isolated job. The same ticket again (``is_resumed``) means the same run, begun in an earlier life.

    ``earlier``: the job's latest runs.
    """

    job: CronJob
    ticket: Ticket
    is_resumed: bool = False
    earlier: tuple[str, ...] = ()


class Speak(msgspec.Struct, frozen=True):
    """Tell the job's text to the conversation it belongs to, and say at once what came of that."""

    job: CronJob
    ticket: Ticket


class Tell(msgspec.Struct, frozen=True):
    """Tell somebody that the job went wrong; ``failures`` in a row, counted with this one."""

    job: CronJob
    outcome: Outcome
    failures: int


class Forget(msgspec.Struct, frozen=True):
    """The job is gone: drop its definition and its state."""

    job: str


Action = Keep | Start | Speak | Tell | Forget
