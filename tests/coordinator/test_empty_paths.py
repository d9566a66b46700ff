"""No command takes an empty path, which would be the folder that the shell happens to be in."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from coordinator.cli.commands import expertmesh


def paths_of(group: click.Group, name: str = "") -> Iterator[tuple[str, click.Parameter]]:
    """Every parameter that is a path, of every command, with the command's name."""
    ctx = click.Context(group)
    for each in group.list_commands(ctx):
        command = group.get_command(ctx, each)
        assert command is not None
        if isinstance(command, click.Group):
            yield from paths_of(command, f"{name}{each} ")
            continue
        yield from ((f"{name}{each}", param) for param in command.params if isinstance(param.type, click.Path))


PATHS = [pytest.param(param, id=f"{name} {param.opts[0]}") for name, param in paths_of(expertmesh)]


def test_paths_are_found() -> None:
    assert len(PATHS) > 30


@pytest.mark.parametrize("param", PATHS)
def test_an_empty_path_is_refused_by_that_name(param: click.Parameter) -> None:
    with pytest.raises(click.BadParameter, match="an empty path"):
        param.type.convert("", param, None)
