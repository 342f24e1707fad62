"""``python -m pool`` is the command ``pool``. It bears the room's name and is no part of it."""

from cli import main

if __name__ == "__main__":
    main(prog_name="pool")
