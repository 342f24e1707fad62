"""The command line ``pool``: one small function a command; what they do is in ``app`` and ``doors``, imported late."""

from cli.program import main

__all__ = ["main"]
