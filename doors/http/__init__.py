"""The HTTP port: events as a stream, methods as calls, health, metrics, and the routes of the other doors.

**Adding a door.** Write a module with ``routes(services) -> Sequence[RouteSpec]`` and name it in
``doors.http.routes.DOORS``. A ``RouteSpec`` has the path, the endpoint, its methods, and the ``Scope`` that a caller
needs; None opens it to everyone, and the door asks ``services.access`` itself. An endpoint is Starlette's:
``async (Request) -> Response``, or ``async (WebSocket) -> None`` with ``is_socket=True`` and no scope. The route's
``render`` answers its errors. Endpoints work with ``doors.http.services.HttpServices``:

- ``services.call(method, params, caller)`` runs a method of the control socket; ``caller`` is an ``HttpCaller`` or the
  door's own. It raises PoolError, whose status ``doors.http.errors`` defines.
- Events are pushes of the methods ``prompt`` (one run's) and ``subscribe`` (a session's, or all).
- ``identity_of(connection)`` is the identity of the shown token; ``services.access.authenticate(token)`` checks a token
  that is not in a header. Then call ``set_identity(connection, identity)``: until then a connection may be evicted.
  ``identity.require_method(method)`` raises where a token may not call a method.
- ``await read_body(request, services)`` reads a body within the limits of size and time.
- Work that must end with the server runs in ``with services.shutdown.scope() as scope:``.
- ``cancel_on_disconnect(request.receive, scope)`` cancels work whose peer has left.
"""
