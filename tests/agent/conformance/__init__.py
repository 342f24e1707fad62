"""The promises of the bundled agent, held from outside: against real processes on pipes. The list is in README.md."""
