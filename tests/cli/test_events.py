"""``pool events`` as commands; what ``follow`` shows on a terminal and over restarts is tested in its parts."""

import msgspec

from tests.cli.fake_pool import EVENT, Bench, envelope

EVENTS = [envelope(41, "run:start", {"worker": "w1"}), envelope(43, "done", {"reason": "completed"})]


def test_into_a_pipe_events_are_json_lines_and_the_end_tells_where_to_go_on(bench: Bench) -> None:
    bench.pool.events = EVENTS
    options = ["-s", "ada", "--channel", "progress", "--channel", "control", "--type", "done", "--since", "40"]
    result = bench.run("events", "follow", "--no-reconnect", *options)
    assert [msgspec.json.decode(line) for line in result.stdout.splitlines()] == EVENTS
    again = "-s ada --channel progress --channel control --type done --no-reconnect --since 43"
    assert result.stderr.splitlines() == [
        f"to continue from here: pool events follow {again}",
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


def test_what_is_injected_is_told_with_the_next_turn(bench: Bench) -> None:
    result = bench.run("events", "inject", "-s", "ada", "--kind", "channel", "the bell rang")
    assert (result.stdout, result.exit_code) == ("the event is queued for ada\n", 0)
    asked = {"session": "ada", "kind": "channel", "text": "the bell rang"}
    assert bench.pool.calls == [("events.inject", asked)]
    assert bench.json("events", "inject", "-s", "ada", "the bell rang") == {"session": "ada", "event": EVENT}
    assert bench.pool.calls[1] == ("events.inject", {"session": "ada", "text": "the bell rang"})


def test_what_stdin_holds_is_injected(bench: Bench) -> None:
    bench.run("events", "inject", "-s", "ada", "-", stdin="the bell rang\n")
    assert bench.pool.calls[0][1]["text"].strip() == "the bell rang"


def test_who_injects_the_same_again_is_told_that_nothing_was_added(bench: Bench) -> None:
    result = bench.run("events", "inject", "-s", "ada", "again")
    assert (result.stdout, result.exit_code) == ("the same event is already queued for ada; nothing was added\n", 0)


def test_what_a_session_is_to_be_told_is_a_table(bench: Bench) -> None:
    heading, line = bench.run("events", "peek", "-s", "ada").stdout.splitlines()
    assert heading.split() == ["CAME", "KIND", "TEXT", "CONTEXT", "ID"]
    assert [line.split()[index] for index in (1, 2, -1)] == ["exec", "Exec", "e1"]
    assert "\x1b" not in line
    assert bench.run("events", "peek", "-s", "bob").stdout == "no system events queued\n"
    assert bench.json("events", "peek", "-s", "ada") == {"session": "ada", "events": [EVENT]}


def test_a_session_must_be_named(bench: Bench) -> None:
    for command in (("inject", "the bell rang"), ("peek",)):
        result = bench.run("events", *command)
        assert (result.exit_code, "'-s' / '--session'" in result.stderr) == (2, True)
