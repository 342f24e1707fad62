"""Ray's side of the engine ``ray``: an actor on each machine that offers slots, which runs a node program there.

A program of its own: it imports Ray and the standard library only, and is started by path with a Python that has the
cluster's version of Ray. It speaks JSON Lines: configuration and commands on standard input, events on standard output.
It ends with its input; node programs do not end with it, nor with any other process of Ray.
"""

import fcntl
import json
import os
import queue
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

Event = dict[str, Any]

_DEVICE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
_LOOK_INTERVAL = 1.0  # seconds; Ray tells no one of drains, so that its own libraries look once a second too
_MAX_TEXT = 2000  # characters of a reason
_MAX_SLOTS, _MAX_LABELS, _MAX_LABEL_CHARS = 10_000, 64, 256  # that the supervisor takes


class OfferedNode(NamedTuple):
    """A machine of Ray that offers slots. ``id``: Ray's, another one after each ``ray start``.

    ``drained_at``: the end of its time, as Unix time; 0 = it has no end, None = it is not being drained.
    """

    id: str
    name: str
    slots: int
    labels: tuple[tuple[str, str], ...]
    drained_at: float | None


# --- what has changed: pure ------------------------------------------------------------------------------------------


def node_name(text: str) -> str:
    """The name under which the supervisor knows it."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", text).lstrip("._-")[:64] or "node"


def offered_nodes(
    rows: Iterable[Mapping[str, Any]], draining: Mapping[str, int], resource: str
) -> dict[str, OfferedNode]:
    """The live nodes that offer ``resource``, by name; of two with one name the first by Ray's id.

    ``rows`` as of ``ray.nodes()``; ``draining``: by id the Unix time in milliseconds, 0 = without an end.
    """
    found: dict[str, OfferedNode] = {}
    for row in sorted(rows, key=lambda row: str(row["NodeID"])):
        slots = min(int(row["Resources"].get(resource, 0)), _MAX_SLOTS)
        name = node_name(row["NodeName"])
        if row["Alive"] and slots > 0 and name not in found:
            until = draining.get(row["NodeID"])
            labels = [(key, value) for key, value in sorted(row["Labels"].items()) if key != "ray.io/node-id"]
            short = [pair for pair in labels if max(map(len, pair)) <= _MAX_LABEL_CHARS]
            drained_at = None if until is None else until / 1000
            found[name] = OfferedNode(row["NodeID"], name, slots, tuple(short[:_MAX_LABELS]), drained_at)
    return found


def changes(known: Mapping[str, OfferedNode], found: Mapping[str, OfferedNode], now: float) -> Iterator[Event]:
    """What the supervisor has to hear; ``now``: Unix time. A node whose Ray was started again is another node.

    Of one that is drained when it is first seen it hears nothing.
    """
    for name, node in known.items():
        if name not in found or found[name].id != node.id:
            yield {"event": "gone", "name": name}
    for name, node in found.items():
        before = known.get(name)
        if before is None or before.id != node.id:
            if node.drained_at is None:
                yield {"event": "node", "name": name, "slots": node.slots, "labels": dict(node.labels)}
        elif node.drained_at is not None and before.drained_at != node.drained_at:
            left = max(0.0, node.drained_at - now) if node.drained_at else None
            yield {"event": "draining", "name": name, "deadline": left}


# --- on the machine of a node ----------------------------------------------------------------------------------------

_KEEPER = 'exec 3<&0; { "$@" <&3 3<&-; echo "$?" >"$0"; } &'
"""A shell that is reparented at once: Ray kills the children of its workers, but not their orphans."""


class NodeStarter:
    """Runs the node program of one machine, outside Ray's process tree; an actor of Ray, with several threads.

    A lock file is held by the program itself, so that one that comes later knows that it runs, whatever has become of
    Ray meanwhile. It ends with its link, so that it ends with its supervisor too.
    """

    def run(self, start: Mapping[str, Any]) -> str:
        """Start the program, or find the one that this life of the supervisor has started; how it has ended.

        Blocks until then, and before that until one of another life has ended. Raises OSError.
        """
        directory = _state_directory()
        path, exit_file, log = (directory / f"{start['name']}.{kind}" for kind in ("lock", "exit", "log"))
        with _opened(path) as lock:
            if not _try_lock(lock):
                life = os.pread(lock, 256, 0).decode()
                fcntl.flock(lock, fcntl.LOCK_EX)
                if life == start["life"]:
                    return _last_words(exit_file, log)
            os.ftruncate(lock, 0)
            os.pwrite(lock, start["life"].encode(), 0)
            exit_file.unlink(missing_ok=True)
            _start_program(start, directory, exit_file, log, lock)
        with _opened(path) as lock:  # opened again, it is not the program's own
            fcntl.flock(lock, fcntl.LOCK_SH)
        return _last_words(exit_file, log)


def _start_program(start: Mapping[str, Any], directory: Path, exit_file: Path, log: Path, lock: int) -> None:
    """Start it; it inherits the lock, and reads its secret from standard input. Raises OSError."""
    own = ["--dial", start["dial"], "--fingerprint", start["fingerprint"], "--secret-file", "-"]
    own += ["--name", start["name"], "--slots", str(start["slots"]), "--state-dir", str(directory)]
    own += _devices(os.environ) if start["gpus"] else []
    with _opened(log, os.O_TRUNC) as output:
        keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEPER, str(exit_file), *start["command"], *own],
            env={name: value for name, value in os.environ.items() if not name.startswith("RAY_")},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=[lock],
        )
    with suppress(BrokenPipeError):  # it has ended already, and said why
        keeper.communicate(f"{start['secret']}\n".encode())


def _devices(environ: Mapping[str, str]) -> list[str]:
    """The option for the devices that Ray has given to the actor."""
    return next((["--devices", f"{name}={ids}"] for name in _DEVICE_VARIABLES if (ids := environ.get(name))), [])


@contextmanager
def _opened(path: Path, flags: int = 0) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | flags, 0o600)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _state_directory() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    directory = Path(base) / "pool-node"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _last_words(exit_file: Path, log: Path) -> str:
    """How a node program has ended, as far as that is known."""
    code = exit_file.read_text().strip() if exit_file.exists() else ""
    said = log.read_bytes()[-_MAX_TEXT:].decode(errors="replace").strip() if log.exists() else ""
    how = f"the node program ended with code {code}" if code else "the node program was killed"
    return f"{how}: {said.splitlines()[-1]}" if said else how


# --- the driver ------------------------------------------------------------------------------------------------------


class RayDriver:
    """Keeps the actors. ``ray``: the module; ``say``: takes an event; ``post``: takes a call for the main thread."""

    def __init__(
        self, ray: Any, config: Mapping[str, Any], say: Callable[[Event], None], post: Callable[[Any], None]
    ) -> None:
        self._ray = ray
        self._config = config
        self._say = say
        self._post = post
        self._known: dict[str, OfferedNode] = {}
        self._actors: dict[str, Any] = {}
        self._runs: dict[str, Any] = {}

    def look(self) -> None:
        """Ask Ray for its nodes, and report what has changed."""
        rows, draining = self._ray.nodes(), self._ray._private.state.state.get_draining_nodes()  # noqa: SLF001
        found = offered_nodes(rows, draining, self._config["resource"])
        for event in changes(self._known, found, time.time()):
            if event["event"] == "gone":
                self._free(event["name"])
            self._say(event)
        self._known = found

    def handle(self, command: Mapping[str, Any]) -> None:
        """Do what the supervisor asks for."""
        match command["op"]:
            case "start":
                self._start(command["name"], command["secret"])
            case "free":
                self._free(command["name"])
            case "scale":
                from ray.autoscaler.sdk import request_resources  # noqa: PLC0415

                bundles = [({self._config["resource"]: 1}, each) for each in command["slots"]]
                request_resources(
                    bundles=[bundle for bundle, _ in bundles], bundle_label_selectors=[each for _, each in bundles]
                )

    def _start(self, name: str, secret: str) -> None:
        node = self._known.get(name)
        if node is None:
            return  # it went meanwhile, and the supervisor has heard so
        if name not in self._actors:
            self._actors[name] = self._make_actor(node)
        start = {key: self._config[key] for key in ("dial", "fingerprint", "life", "command")}
        start |= {"name": name, "secret": secret, "slots": node.slots, "gpus": bool(self._config["reserve"].get("GPU"))}
        run = self._actors[name].run.remote(start)
        self._runs[name] = run
        run.future().add_done_callback(lambda done: self._post(lambda: self._ended(name, run, done)))

    def _make_actor(self, node: OfferedNode) -> Any:
        """An actor that holds all slots of the node, and what is reserved besides."""
        reserve = dict(self._config["reserve"])
        cpus, gpus, memory = (reserve.pop(kind, 0) for kind in ("CPU", "GPU", "memory"))
        strategy = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node.id, soft=False)
        options = {"num_cpus": cpus, "num_gpus": gpus, "scheduling_strategy": strategy, "max_concurrency": 8}
        resources = {self._config["resource"]: node.slots, **reserve}
        memory_option = {"memory": memory} if memory else {}
        return self._ray.remote(NodeStarter).options(**options, **memory_option, resources=resources).remote()

    def _ended(self, name: str, run: Any, done: Any) -> None:
        """A node program has ended, or its actor is gone, which may leave it running: it is asked for again."""
        if self._runs.get(name) is not run:
            return
        del self._runs[name]
        try:
            reason = str(done.result())
        except self._ray.exceptions.RayError as exc:
            reason = f"Ray: {type(exc).__name__}: {exc}"
            if not isinstance(exc, (self._ray.exceptions.ActorUnavailableError, self._ray.exceptions.RayTaskError)):
                self._actors.pop(name, None)
        self._say({"event": "ended", "name": name, "reason": reason[:_MAX_TEXT]})

    def _free(self, name: str) -> None:
        """Give the node back to Ray."""
        self._runs.pop(name, None)
        actor = self._actors.pop(name, None)
        if actor is not None:
            self._ray.kill(actor)


def _read_commands(lines: Iterable[str], post: Callable[[Any], None], end: Callable[[int], Any]) -> None:
    """Hand on each command; ``end`` ends the program at once with the supervisor, wherever its main thread is."""
    for line in lines:
        post(json.loads(line))
    end(0)


def main() -> int:
    """Run until standard input ends; 1 = Ray cannot be used."""
    events = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Ray prints is no event

    def say(event: Event) -> None:
        events.write(f"{json.dumps(event)}\n")
        events.flush()

    config = json.loads(sys.stdin.readline())
    posted: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read_commands, args=(sys.stdin, posted.put, os._exit), daemon=True).start()
    try:
        import ray  # noqa: PLC0415  # the pure part needs none

        ray.init(address=config["address"], log_to_driver=False, logging_level="WARNING")
        _run(RayDriver(ray, config, say, posted.put), posted)
    except Exception as exc:  # noqa: BLE001  # whatever Ray raises ends this driver, which is started again
        say({"event": "lost", "reason": explained(exc)[:_MAX_TEXT]})
        return 1
    return 0


def explained(exc: BaseException) -> str:
    """What went wrong, and why: Ray's own errors often say the one without the other."""
    causes = [exc]
    while (cause := causes[-1].__cause__ or causes[-1].__context__) is not None and cause not in causes:
        causes.append(cause)
    texts = [str(each) or type(each).__name__ for each in causes]
    return ": ".join(dict.fromkeys(" ".join(text.split()) for text in texts))


def _run(driver: RayDriver, posted: "queue.SimpleQueue[Any]") -> None:
    due = time.monotonic()
    while True:
        if time.monotonic() >= due:
            driver.look()
            due = time.monotonic() + _LOOK_INTERVAL
        with suppress(queue.Empty):
            what = posted.get(timeout=max(0.0, due - time.monotonic()))
            if callable(what):
                what()
            else:
                driver.handle(what)


if __name__ == "__main__":
    sys.exit(main())
