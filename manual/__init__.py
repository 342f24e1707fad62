"""Pages of the documentation that are made from the code while it is built, so that they cannot fall behind it."""
