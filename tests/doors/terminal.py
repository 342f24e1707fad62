"""A terminal, or a file, as a view writes to it."""
