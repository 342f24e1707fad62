"""The bundled worker: a coding agent that speaks the native dialect on stdin and stdout. Imports nothing heavy."""

__all__ = ["__version__"]

__version__ = "0.1.0"
