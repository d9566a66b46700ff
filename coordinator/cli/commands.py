"""The commands of the command line, and how errors look; each has a file of its own.

Commands import what they need when they run, so that help comes at once and children start before libraries load.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

import click

from coordinator.cli.wording import harmless
from coordinator.interrupts import Interrupts
from protocol.errors import ExpertmeshError

COMMANDS = (
    "generate",
    "up",
    "down",
    "scale",
    "plan",
    "render",
    "status",
    "logs",
    "drain",
    "worker",
    "peer",
    "lookahead",
    "weights",
    "model",
    "profile",
    "keys",
    "logits",
    "hosted",
)

FAILED = 2
"""Exit code of a command that could not do what it was asked to."""


class Commands(click.Group):
    """A group that imports a command's module when the command is wanted."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        with (ctx.find_object(Interrupts) or Interrupts()).held():
            command = import_module(f"coordinator.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="expertmesh", message="%(prog)s %(version)s")
def expertmesh() -> None:
    """Run a Mixture-of-Experts model with a coordinator and expert workers."""


def carry_out(arguments: list[str], interrupts: Interrupts) -> int:
    """Run the command that the arguments name; every failure is a line on stderr and the exit code that is returned."""
    if sys.stdout is None:  # its number would go to the next file that is opened
        return _fail("stdout is closed: a terminal, file or pipe is expected, or /dev/null")
    try:
        code = expertmesh.main(arguments, prog_name="expertmesh", standalone_mode=False, obj=interrupts)
        return code if isinstance(code, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return FAILED
    except click.ClickException as error:
        return _fail(error.format_message())
    except (ExpertmeshError, ImportError) as error:  # the kernels refuse to be loaded with a bad EXPERTMESH_ISA
        return _fail(str(error))
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except MemoryError:
        return _fail("there is not enough memory for that")
    except Exception as error:
        if os.environ.get("EXPERTMESH_DEBUG"):
            raise
        return _fail(f"{type(error).__name__}: {error} (a bug; EXPERTMESH_DEBUG=1 shows where)")


def _fail(text: str) -> int:
    for line in text.splitlines() or [""]:
        click.echo(f"error: {harmless(line)}", err=True)
    return FAILED
