"""The control socket: server, connections, and the blocking client."""
