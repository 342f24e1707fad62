"""The ways in: the control socket and its client, and what a terminal shows.

Import the modules by their names: the client side must not load trio.
"""
