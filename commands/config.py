"""``pool config``: the settings file. Write a first one, check it, see what holds, change one key."""

import os
from pathlib import Path

import click

from commands.options import config_option, json_option, load_with_flags, working_directory


@click.group()
@config_option
def config(config: str | None) -> None:
    """The settings file: init, check, show, set."""


@config.command("init")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@config_option
def init(config: str | None, *, force: bool) -> None:
    """Write a settings file that explains every setting and changes none (./pool.toml)."""
    from settings.files import init_config

    path = Path(config or "pool.toml")
    init_config(path, force=force)
    click.echo(f"{path} is written")


@config.command("check")
@config_option
@json_option
@click.pass_context
def check(ctx: click.Context, config: str | None, *, as_json: bool) -> None:
    """Say everything that is wrong with the settings file; 2 when something is."""
    from commands.output import show_problems
    from settings.files import check_config

    path = _find(config)
    ctx.exit(0 if show_problems(path, check_config(path), as_json=as_json) else 2)


@config.command("show")
@config_option
@json_option
def show(config: str | None, *, as_json: bool) -> None:
    """Print every setting that holds, as TOML; secrets are hidden."""
    from settings.files import show_config

    click.echo(show_config(load_with_flags(config, None), as_json=as_json))


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@config_option
def set_value(config: str | None, key: str, value: str) -> None:
    """Set KEY (as pool.max) to VALUE; `pool reload` then tells a running supervisor."""
    from settings.files import set_config

    change = set_config(_find(config) or Path("pool.toml"), key, value)
    click.echo(f"{change.key} = {change.value}  ({change.file})")
    if change.backup is not None:
        click.echo(f"its comments could not be kept; the file as it was is {change.backup}", err=True)


def _find(config: str | None) -> Path | None:
    """The file that is named, or would be found."""
    from settings.load import find_settings_file

    return find_settings_file(config, os.environ, working_directory())
