"""The gateway WebSocket protocol, versions 4 and 3, at any path: frames of JSON text, both ways.

The server begins with ``connect.challenge``; the peer's first frame is the request ``connect`` with its token. Then it
may make requests, and receives ``agent`` and ``chat`` events of every run. ``handshake`` (states of a connection) and
``translator`` (the gateway's events to the protocol's) are pure; ``connection`` and ``hub`` carry them out.
"""
