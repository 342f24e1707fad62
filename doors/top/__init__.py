"""``pool top``: the dashboard's picture in a terminal: workers, waiters, sessions, events, how long things take."""
