"""`expertmesh generate`: the continuation of one prompt."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from coordinator.cli.device_options import DEVICE, VRAM_GIB, settled
from coordinator.cli.ids import parse_ids
from coordinator.cli.lookahead_option import LOOKAHEAD_OPTION
from coordinator.cli.numbers import Whole
from coordinator.cli.paths import CONFIG, MODEL, MODEL_HELP, Place
from coordinator.cli.prompt_files import read_prompt_file
from coordinator.config import MAX_THREADS, MAX_TOKENS, MAX_WORKERS, ClusterConfig, LookaheadConfig, default_threads
from coordinator.drafts import MAX_DRAFTS
from coordinator.interrupts import Interrupts
from coordinator.private_cluster import kept_private, private_cluster
from coordinator.probe import somebody_listens
from protocol.errors import ConfigError, RequestError

if TYPE_CHECKING:
    from coordinator.question import Question


DECIDED_BY_FILE = ("model", "workers", "threads", "kv", "chunk", "device", "vram_gib", "lookahead", "profile")


@click.command("generate")
@click.argument("prompt", required=False)
@click.option("--prompt-file", type=Place(allow_dash=True), help="Read the prompt from a UTF-8 file.")
@click.option("--prompt-ids", metavar="1,2,3", help="The prompt as token ids; @FILE has them in a file.")
@click.option("--model", type=MODEL, help=f"{MODEL_HELP}  [default: the demo model]")
@click.option(
    "--config", type=CONFIG, help="Ask the cluster of this file: the one that is up, or one for this answer alone."
)
@click.option("--workers", type=Whole(0, MAX_WORKERS), help="Local workers, for this answer.  [default: 0]")
@click.option("--threads", type=Whole(1, MAX_THREADS), help="Threads of the coordinator, shared by the workers.")
@click.option("--kv", type=click.Choice(["f16", "f32"]), help="Type of cached keys and values.  [default: f16]")
@click.option("--chunk", type=Whole(1, 512), help="Prompt rows read in one step.")
@DEVICE
@VRAM_GIB
@LOOKAHEAD_OPTION
@click.option(
    "--profile",
    type=Place(),
    metavar="FILE",
    help="Count in FILE which experts are used, and place them by what is counted there.",
)
@click.option(
    "--max-tokens", type=Whole(1, MAX_TOKENS), default=128, show_default=True, help="Generate at most so many."
)
@click.option("--ignore-eos", is_flag=True, help="Go on after tokens that mean the end.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; may be given again.")
@click.option("--temperature", default=0.0, show_default=True, help="From 0, which always takes the likeliest token.")
@click.option("--top-k", default=0, show_default=True, help="Sample from so many of the likeliest; 0 is all.")
@click.option(
    "--top-p", default=1.0, show_default=True, help="From the likeliest with this probability: over 0, up to 1."
)
@click.option("--min-p", default=0.0, show_default=True, help="Least share of the likeliest one's probability: 0 to 1.")
@click.option("--repeat-penalty", default=1.0, show_default=True, help="Of recent tokens: over 0; 1 is none.")
@click.option("--repeat-window", default=64, show_default=True, help="How many tokens are recent, from 0.")
@click.option("--seed", default=0, show_default=True, help="From 0 to 2**63-1: same seed, same answer.")
@click.option(
    "--drafts",
    type=Whole(0, MAX_DRAFTS),
    help="Guess so many tokens a step at most, from what the text repeats; the answer is the same, 0 is off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object at the end, and nothing else.")
@click.option("--dry-run", is_flag=True, help="Check it all, print the processes that would be started, and stop.")
@click.pass_obj
def command(interrupts: Interrupts, /, as_json: bool, dry_run: bool, **options: Any) -> None:
    """Continue PROMPT with a Mixture-of-Experts model, here or on a running cluster.

    The text goes to stdout as it comes; progress, speeds and the workers' shares go to stderr.
    """
    config, shared = _cluster(options, interrupts)
    question = _question(options, interrupts)
    if dry_run:
        with interrupts.held():
            from coordinator.cli.dry_run import show_plan
        show_plan(config, question, shared=shared)
    else:
        with interrupts.held():
            from coordinator.cli.generating import generate
        generate(config, question, interrupts, shared=shared, as_json=as_json)


def _cluster(options: dict[str, Any], interrupts: Interrupts) -> tuple[ClusterConfig, bool]:
    """What to ask, and whether it is up: the cluster of a file, or one for this answer, where nobody else finds it."""
    if options["config"] is None:
        device, vram_gib = settled(options["device"], options["vram_gib"])
        config = private_cluster(
            options["model"].absolute() if options["model"] else _demo_model(interrupts),
            workers=options["workers"] or 0,
            threads=options["threads"] or default_threads(),
            kv=options["kv"] or "f16",
            chunk=options["chunk"],
            device=device,
            vram_gib=vram_gib,
            profile=options["profile"].absolute() if options["profile"] else None,
        )
        return replace(config, lookahead=LookaheadConfig(enabled=options["lookahead"] or "auto")), False
    decided = [name for name in DECIDED_BY_FILE if options[name] is not None]
    if decided:
        raise ConfigError(f"--{decided[0].replace('_', '-')} and --config exclude each other: the file decides that")
    with interrupts.held():
        from coordinator.cluster_file import read_config

    config = read_config(options["config"])
    shared = somebody_listens(config.coordinator.listen)
    return (config if shared else kept_private(config)), shared


def _demo_model(interrupts: Interrupts) -> Path:
    with interrupts.held():
        from coordinator.demo import demo_model

    return demo_model()


def _question(options: dict[str, Any], interrupts: Interrupts) -> Question:
    """What to ask, checked as far as that needs no model. RequestError names what is wrong."""
    with interrupts.held():
        from coordinator.question import Question
        from coordinator.sampling import Sampling, SamplingError

    try:
        sampling = Sampling(**{field.name: options[field.name] for field in fields(Sampling)})
    except SamplingError as error:
        lines = [f"--{name.replace('_', '-')} {problem}" for name, problem in error.wrong.items()]
        raise RequestError("\n".join(lines)) from None
    return Question(
        prompt=_prompt(options),
        max_tokens=options["max_tokens"],
        sampling=sampling,
        stop=options["stop"],
        ignore_eos=options["ignore_eos"],
        drafts=options["drafts"],
    )


def _prompt(options: dict[str, Any]) -> str | tuple[int, ...]:
    """The text, or the ids: exactly one way to give them must be used."""
    given = [name for name in ("prompt", "prompt_file", "prompt_ids") if options[name] is not None]
    if len(given) != 1:
        found = " and ".join("PROMPT" if name == "prompt" else f"--{name.replace('_', '-')}" for name in given)
        raise RequestError(f"one of PROMPT, --prompt-file and --prompt-ids is expected, found {found or 'none'}")
    if given == ["prompt_ids"]:
        return parse_ids(options["prompt_ids"], "--prompt-ids")
    text = options["prompt"] if given == ["prompt"] else read_prompt_file(options["prompt_file"], "--prompt-file")
    if not text:
        raise RequestError("the prompt is empty: one token at least is expected")
    return text
