"""The HTTP door: events as a stream, methods as calls, health, figures; other doors have their routes on its port.

**How another door comes in.** It has a module with a function ``routes(services) -> Sequence[Opening]`` (see
``doors.http.services``), which is named in ``doors.http.routes.DOORS``. An ``RouteSpec`` says path, endpoint, methods,
and which ``Scope`` a caller needs; None opens it to everybody, and then the door asks ``services.access`` itself. An
endpoint is Starlette's: ``async (Request) -> Response``, or ``async (WebSocket) -> None`` with ``is_socket=True``. What
it raises is answered by the opening's ``render``. It works with ``doors.http.services.Services``:

- ``services.call(method, params, caller)`` runs a method of the control socket; ``caller`` is a
  ``doors.http.services.HttpCaller`` or the door's own. It raises PoolError, whose status is ``doors.http.errors``'.
- Events come as pushes of the methods ``prompt`` (one run's) and ``subscribe`` (a session's, or all).
- ``identity_of(connection)`` is who has shown which token; ``services.access.authenticate(token)`` is for a token that
  comes otherwise than in a header. Then say ``prove(connection, identity)``: until then a connection gives way to
  others. ``identity.check(method)`` raises where a token may not call a method.
- ``await read_body(request, services)`` reads a body within the limits of size and time.
- What would outlast the server's end runs in ``with services.closing.scope() as scope:``; ``scope.cancelled_caught``.
- ``doors.http.services.until_gone(request.receive)`` returns when the peer has left.
"""
