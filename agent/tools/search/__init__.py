"""Searching trees of files for ``find`` and ``grep``, in a child process.

The patterns come from a model and from the ignore files of strangers. One match of a bad pattern can take forever and
cannot be interrupted from another thread of the same interpreter; a process can be ended. The child runs ``child`` and
what that imports (``walking``, ``ignoring``, ``globs``, ``matching``): the standard library alone, so that it starts
fast. ``running`` is the parent's side.
"""
