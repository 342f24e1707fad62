"""What a node and its supervisor keep to themselves, or say why they cannot."""

from pathlib import Path

import pytest

from cluster.listener import LifeCertificate
from commands.node import node
from errors import SettingsRefused, UsageError


def test_a_secret_that_others_may_read_is_not_used(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s" * 32)
    secret.chmod(0o640)
    arguments = ["--dial", "127.0.0.1:1", "--fingerprint", "ab", "--secret-file", str(secret)]
    with pytest.raises(UsageError, match="others may use the secret file"):
        node.main([*arguments, "--state-dir", str(tmp_path)], standalone_mode=False)


def test_why_openssl_makes_no_certificate_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "openssl"
    program.write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(SettingsRefused, match="no entropy"):
        LifeCertificate.make()
