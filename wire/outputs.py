"""The directory for full outputs of a conversation's tools, beside its transcript."""

OUTPUTS_SUFFIX = ".tool-outputs"
"""The end of these directories' names, by which file tools refuse those of other conversations."""


def outputs_directory(transcript: str) -> str:
    """The path of the directory; it is made for the first cut output, and removed with the transcript."""
    return transcript + OUTPUTS_SUFFIX
