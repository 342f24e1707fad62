"""``pool events follow`` as a command; what it shows on a terminal and over restarts is tested in its parts."""

import msgspec

from tests.cli.fake_pool import Bench, envelope

EVENTS = [envelope(41, "run:start", {"worker": "w1"}), envelope(43, "done", {"reason": "completed"})]


def test_into_a_pipe_events_are_json_lines_and_the_end_tells_where_to_go_on(bench: Bench) -> None:
    bench.pool.events = EVENTS
    options = ["-s", "ada", "--channel", "progress", "--channel", "control", "--type", "done", "--since", "40"]
    result = bench.run("events", "follow", "--no-reconnect", *options)
    assert [msgspec.json.decode(line) for line in result.stdout.splitlines()] == EVENTS
    again = "-s ada --channel progress --channel control --type done --no-reconnect --since 43"
    assert result.stderr.splitlines() == [
        f"to go on from here: pool events follow {again}",
        "pool: the supervisor is stopping",
    ]
    assert result.exit_code == 1
    assert bench.pool.calls[0] == (
        "subscribe",
        {"session": "ada", "channels": ["progress", "control"], "kinds": ["done"], "since": 40},
    )


def test_without_options_it_follows_all_from_now_on(bench: Bench) -> None:
    bench.pool.events = EVENTS
    bench.run("events", "follow", "--no-reconnect")
    assert [asked for _, asked in bench.pool.calls] == [{}, {"since": 43}]
