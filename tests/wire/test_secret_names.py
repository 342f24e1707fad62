"""Which variables are taken to hold a secret."""

import pytest

from wire.redaction import is_secret_variable, secret_values


@pytest.mark.parametrize(
    "name",
    [
        *("OPENAI_API_KEY", "KEY", "GH_TOKEN", "CLIENT_SECRET", "DB_PASSWORD", "db_password", "PGPASSWORD", "DB_PASS"),
        *("SSH_PASSPHRASE", "AWS_SECRET_ACCESS_KEY", "GITHUB_PAT", "BASIC_AUTH", "MYSQL_PWD", "GOOGLE_CREDENTIALS"),
    ],
)
def test_names_say_that_the_value_is_secret(name: str) -> None:
    assert is_secret_variable(name)


@pytest.mark.parametrize(
    "name", ["MODE", "PATH", "LOG_LEVEL", "KEY_FILE", "TOKEN_DIR", "COMPASS", "AUTHOR", "HOME", "PWD"]
)
def test_other_names_do_not(name: str) -> None:
    assert not is_secret_variable(name)


def test_addresses_with_a_password_and_what_is_marked_are_secret_too() -> None:
    variables = [
        ("MODE", "production"),
        ("DATABASE", "postgres://me:hidden@db/x"),
        ("SITE", "https://example.org:8080/a@b"),
        ("LICENCE", "abc-def"),
    ]
    assert secret_values(variables, ["LICENCE"]) == ("postgres://me:hidden@db/x", "abc-def")
