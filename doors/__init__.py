"""The ways in: control socket, HTTP port, OpenAI API, WebSocket, dashboard.

Import the modules by their names: the client side must not load trio.
"""
