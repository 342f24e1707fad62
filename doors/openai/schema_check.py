"""A program that validates one JSON value against a JSON schema, within resource limits of the kernel.

Standard input: ``{"schema": ..., "value": ...}``; without ``value`` only the schema is checked. Standard output: a JSON
string with the problem, or null. Both inputs are untrusted: a schema that takes exponential time, memory or stack ends
this process, not the supervisor. References to other documents are not followed.
"""

import json
import resource
import sys
from typing import Any

import jsonschema_rs

_CPU_SECONDS = 2
_MEMORY_BYTES = 1024 * 1024 * 1024
_MOST_CHARS = 500


def main() -> None:
    """Validate the input and print the result."""
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_SECONDS, _CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    sys.stdout.write(json.dumps(_problem(json.load(sys.stdin))))


def _problem(question: dict[str, Any]) -> str | None:
    try:
        validator = jsonschema_rs.validator_for(question["schema"], retriever=_reject_reference)
        if "value" in question:
            validator.validate(question["value"])
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError) as exc:
        path = getattr(exc, "instance_path", ())
        where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
        message = getattr(exc, "message", None) or str(exc)
        return (f"at ${where}: {message}" if where else message)[:_MOST_CHARS]
    return None


def _reject_reference(uri: str) -> Any:
    raise ValueError(f"references to other documents are not followed: {uri[:_MOST_CHARS]}")


if __name__ == "__main__":
    main()
