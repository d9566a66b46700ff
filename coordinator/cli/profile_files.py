"""The work of `expertmesh profile merge` and `expertmesh profile record`."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import BinaryIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

import native
from coordinator.answering import prompt_ids_of
from coordinator.choosing import choose
from coordinator.cli.wording import harmless
from coordinator.devices import opened
from coordinator.engine import Chunk, Engine
from coordinator.local import LocalExperts
from coordinator.new_file import new_file
from coordinator.profile import Profile, covering, merged
from coordinator.profile_file import encoded, read_profile, write_profile
from coordinator.profile_recorder import Recorder
from coordinator.question import Question
from coordinator.sampling import Sampling
from coordinator.tokenizer import Tokenizer
from expert_worker.bank import ExpertBank
from protocol.model import Model
from protocol.wording import counted

OPTION = "--out"
CHUNK = 64
"""Rows of one step."""
GREEDY = Sampling()


def merge(paths: Sequence[Path], out: str) -> None:
    """Write the sum of the profiles at `paths`, and tell what it is. ConfigError if they are not of one model."""
    first = read_profile(paths[0])
    profile = merged([first, *(read_profile(path, first) for path in paths[1:])])
    write_profile(profile, Path(out), option=OPTION)
    _tell(profile, out)


def record(path: Path, prompts: Sequence[str], out: str, *, force: bool, max_tokens: int, threads: int) -> None:
    """Answer the prompts, and write the profile of that, with `force` in place of a file that is there.

    Raises ExpertmeshError; then nothing is written.
    """
    pool = native.Pool(threads)
    with (
        Model.open(path) as model,
        _new(out, model, force) as file,
        ExpertBank(model, pool) as bank,
        opened("cpu", None, model, pool, max_rows=CHUNK, kv="f16") as devices,
    ):
        tokenizer = Tokenizer.of(model.files.metadata)
        questions = [Question(prompt=prompt, max_tokens=max_tokens, sampling=GREEDY) for prompt in prompts]
        ids = [prompt_ids_of(question, tokenizer, model.geometry) for question in questions]
        recorder = Recorder(Profile.empty(model))
        with Engine(model, LocalExperts(bank), devices.dense, recorder) as engine, _progress(len(ids)) as advance:
            for prompt in ids:
                _answer(engine, prompt, max_tokens, tokenizer.stop_ids)
                advance()
        file.write(encoded(recorder.profile()))
    _tell(recorder.profile(), out)


def _new(out: str, model: Model, force: bool) -> AbstractContextManager[BinaryIO]:
    return new_file(out, keep=[file.path for file in model.files.files], option=OPTION, replace=force)


def _answer(engine: Engine, prompt: list[int], max_tokens: int, stop_ids: Collection[int]) -> None:
    """Read the prompt, and go on until the end of the answer: its last token need not be computed."""
    sequence = engine.new_sequence(prompt, max_tokens)
    for start in range(0, len(prompt), CHUNK):
        [logits] = engine.step([Chunk(sequence=sequence, ids=prompt[start : start + CHUNK])])
    for _ in range(max_tokens - 1):
        token = choose(logits[-1], sequence.ids, GREEDY, sequence.position)
        if token in stop_ids:
            return
        [logits] = engine.step([Chunk(sequence=sequence, ids=[token])])


@contextmanager
def _progress(prompts: int) -> Iterator[Callable[[], None]]:
    """A bar on a terminal; the function moves it on by a prompt."""
    columns = TextColumn("answering"), BarColumn(), MofNCompleteColumn()
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("", total=prompts)
        yield lambda: progress.advance(task)


def _tell(profile: Profile, out: str) -> None:
    share = f"{counted(covering(profile.counts, 0.9), 'expert')} of {profile.known.size} have 90 % of the uses"
    line = f"{out}: {counted(profile.rows, 'row')}, {share}"
    Console(stderr=True, highlight=False).print(Text(harmless(line)), soft_wrap=True)
