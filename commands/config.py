"""``pool config``: write a settings file, check it, show the effective settings, change one key."""

import os
import sys
from pathlib import Path

import click

from commands.completion import complete_setting_keys
from commands.groups import CommandGroup
from commands.options import config_option, json_option, load_with_flags, print_json, working_directory
from errors import UsageError
from settings.config_file import check_config, init_config, set_config, show_config
from settings.location import find_settings_file
from wire.terminal import clean


@click.group(cls=CommandGroup)
@config_option
def config(config: str | None) -> None:
    """The settings file: init, check, show, set."""


@config.command("init")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@config_option
def init(config: str | None, *, force: bool) -> None:
    """Write a settings file that explains every setting and changes none (./pool.toml)."""
    path = Path(config or "pool.toml")
    init_config(path, force=force)
    click.echo(f"{path} is written")


@config.command("check")
@json_option
@config_option
@click.pass_context
def check(ctx: click.Context, config: str | None, *, as_json: bool) -> None:
    """List every problem of the settings file; exit code 2 when there is one."""
    path = _find(config)
    problems = check_config(path) or _missing_packages(config)
    if as_json:
        print_json({"file": None if path is None else str(path), "problems": problems})
    elif problems:
        sys.stderr.write("".join(f"pool: {clean(problem)}\n" for problem in problems))
    else:
        click.echo(f"{clean(path or 'there is no file; the embedded defaults')}: no problems")
    ctx.exit(2 if problems else 0)


@config.command("show")
@json_option
@config_option
def show(config: str | None, *, as_json: bool) -> None:
    """Print the effective settings as TOML; secrets are hidden."""
    click.echo(show_config(load_with_flags(config, None), as_json=as_json))


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key", shell_complete=complete_setting_keys)
@click.argument("value")
@json_option
@config_option
def set_value(config: str | None, key: str, value: str, *, as_json: bool) -> None:
    """Set KEY (as pool.max) to VALUE; apply it to a running supervisor with `pool reload`."""
    change = set_config(_find(config) or Path("pool.toml"), key, value)
    if as_json:
        print_json({name: fact and str(fact) for name, fact in change._asdict().items()})
        return
    click.echo(f"{change.key} = {change.value}  ({change.file})")
    if change.backup is not None:
        click.echo(f"its comments could not be kept; the file as it was is {change.backup}", err=True)


def _missing_packages(config: str | None) -> list[str]:
    """What a supervisor with these settings, which are sound, would lack here."""
    from app.optional import tracer_type

    try:
        tracer_type(load_with_flags(config, None))
    except UsageError as exc:
        return [exc.message]
    return []


def _find(config: str | None) -> Path | None:
    """The file of ``--config``, else the one the supervisor would find."""
    return find_settings_file(config, os.environ, working_directory())
