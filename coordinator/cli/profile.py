"""`expertmesh profile`: which experts are used most."""

from __future__ import annotations

from pathlib import Path

import click

from coordinator.cli.numbers import Whole
from coordinator.cli.paths import MODEL, Existing, Place
from coordinator.config import MAX_THREADS, MAX_TOKENS, default_threads
from coordinator.interrupts import Interrupts
from protocol.errors import RequestError

PROFILE = Existing(folder=False)


@click.group("profile")
def command() -> None:
    """See, join and make profiles: which experts are used most."""


@command.command("show", short_help="Tell how concentrated the uses of experts are.")
@click.argument("path", metavar="FILE", type=PROFILE)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def show_command(interrupts: Interrupts, /, path: Path, as_json: bool) -> None:
    """Tell how many experts have most of the uses, in all layers together and in each."""
    with interrupts.held():
        from coordinator.cli.output import put
        from coordinator.cli.profile_view import as_object, as_text
        from coordinator.profile_file import read_profile

    put((as_object if as_json else as_text)(path, read_profile(path)))


@command.command("merge", short_help="Make one profile of several of one model.")
@click.argument("paths", metavar="FILE...", type=PROFILE, nargs=-1, required=True)
@click.option("-o", "--out", required=True, metavar="OUT", help="The profile to write, in place of one that is there.")
@click.pass_obj
def merge_command(interrupts: Interrupts, /, paths: tuple[Path, ...], out: str) -> None:
    """Add up the uses that several profiles of the same model have counted."""
    with interrupts.held():
        from coordinator.cli.profile_files import merge

    merge(paths, out)


@command.command("record", short_help="Make a profile by answering prompts.")
@click.argument("model", metavar="MODEL", type=MODEL)
@click.option("-p", "--prompt", "prompts", multiple=True, metavar="TEXT", help="A prompt; may be given again.")
@click.option(
    "--file",
    "files",
    multiple=True,
    type=Place(allow_dash=True),
    help="A UTF-8 file with a prompt; may be given again.",
)
@click.option("-o", "--out", required=True, metavar="OUT", help="The profile to write.")
@click.option("--force", is_flag=True, help="Replace a file that is there: what it has counted is lost.")
@click.option(
    "--max-tokens",
    type=Whole(0, MAX_TOKENS),
    default=128,
    show_default=True,
    help="Generate at most so many for each prompt.",
)
@click.option("--threads", type=Whole(1, MAX_THREADS), help="[default: the cores it may use]")
@click.pass_obj
def record_command(
    interrupts: Interrupts,
    /,
    model: Path,
    prompts: tuple[str, ...],
    files: tuple[Path, ...],
    out: str,
    force: bool,
    max_tokens: int,
    threads: int | None,
) -> None:
    """Answer prompts in this process, always with the likeliest token, and write which experts that used.

    A cluster counts while it is used, if its file says where: profile = "FILE" in [coordinator].
    """
    with interrupts.held():
        from coordinator.cli.profile_files import record
        from coordinator.cli.prompt_files import read_prompt_file

    texts = [*prompts, *(read_prompt_file(path, "--file") for path in files)]
    if not texts:
        raise RequestError("a prompt is expected: -p TEXT or --file FILE")
    record(model, texts, out, force=force, max_tokens=max_tokens, threads=threads or default_threads())
