"""The pool as an ACP agent (Agent Client Protocol, version 1) that an editor starts. Pure: decisions without I/O."""
