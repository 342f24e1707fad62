"""A front end process to be killed: it sends one prompt, and prints the progress of its run.

    python -m stress.front_end_process SOCKET RUN SESSION TEXT

It prints ``granted`` when the run has begun on a worker, and ``answered`` at its end. Standard library only.
"""

import json
import socket
import sys

COMMAND = (sys.executable, "-P", "-m", "stress.front_end_process")
"""Starts it from any directory; its arguments follow."""
ANSWERED, GRANTED = "answered", "granted"


def main() -> int:
    """The exit code: 0 answered, 1 the connection ended before."""
    path, run, session, text = sys.argv[1:]
    prompt = {"id": run, "method": "prompt", "params": {"run": run, "session": session, "text": text}}
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(path)
        connection.sendall(json.dumps(prompt).encode() + b"\n")
        with connection.makefile("rb") as lines:
            for line in lines:
                message = json.loads(line)
                if message.get("id") == run:
                    _print_line(ANSWERED)
                    return 0
                if any(event["type"] == "run:start" for event in message["data"].get("events", ())):
                    _print_line(GRANTED)
    return 1


def _print_line(word: str) -> None:
    sys.stdout.write(f"{word}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
