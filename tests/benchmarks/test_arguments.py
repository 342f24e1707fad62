"""What ``python -m benchmarks`` is told to measure."""

import pytest

from benchmarks.__main__ import main


def test_a_name_that_is_none_is_refused_and_the_names_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["benchmarks", "rpc", "rcp"])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    told = capsys.readouterr().err
    assert "there is no rcp; there are " in told
    assert ", rpc, " in told
