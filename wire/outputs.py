"""Where the bundled agent keeps the full outputs of a conversation's tools: in a directory beside its transcript."""

__all__ = ["OUTPUTS_SUFFIX", "outputs_of"]

OUTPUTS_SUFFIX = ".tool-outputs"
"""Of every such directory's name: by it file tools know those of other conversations, which they do not open."""


def outputs_of(transcript: str) -> str:
    """The directory; it is made when the first output is too long to show, and removed with the transcript."""
    return transcript + OUTPUTS_SUFFIX
