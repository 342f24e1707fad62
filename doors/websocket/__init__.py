"""The gateway WebSocket protocol, version 4 and 3, at ``/ws`` and at ``/``: frames of JSON text, both ways.

The server begins with ``connect.challenge``; the first frame of the peer is the request ``connect`` with its token.
From then on it may make requests, and hears of every run: ``agent`` and ``chat`` events. What is decided here is pure:
``machine`` (what a frame of the peer leads to), ``handshake`` (who may come in as what), ``story`` (from events of the
gateway to events of the protocol), ``outbox`` (what a slow peer loses). ``connection`` and ``hub`` carry it out.
"""
