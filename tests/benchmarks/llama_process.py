"""The other side of a comparison: a process of an interpreter that has llama-cpp-python, which runs llama_side.py."""

from __future__ import annotations

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from sides import ASK_S, READY_S, Prompts, Timing

from protocol.errors import ExpertmeshError
from protocol.wording import counted

PROGRAM = Path(__file__).with_name("llama_side.py")
END_S = 10.0


class LlamaProcess:
    """llama.cpp with one model, in one of its two layouts of the weights."""

    def __init__(
        self, python: Path, model: Path, context: int, log: IO[bytes], *, repack: bool, sequences: int = 1
    ) -> None:
        """Start it with room for so many positions of each of so many sequences; `started` waits for it.

        ExpertmeshError if it cannot be started.
        """
        self.layout = "repacked" if repack else "plain"
        self.version = self.features = ""
        self._log = log
        options = ["--model", str(model), "--context", str(context), "--sequences", str(sequences)]
        options += [] if repack else ["--no-repack"]
        try:
            self._process = subprocess.Popen(
                [python, "-P", PROGRAM, *options],
                env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # a terminal's Ctrl-C reaches us alone; it ends with its stdin
            )
        except OSError as error:
            raise ExpertmeshError(f"{python} cannot be started: {error.strerror}") from None

    @property
    def pid(self) -> int:
        return self._process.pid

    def started(self) -> None:
        """Wait until the model is loaded."""
        told = self._reply(READY_S)
        self.version, self.features = told["version"], told["features"].strip(" |")

    def ask(self, prompts: Prompts, tokens: int, threads: int) -> Timing:
        """The answers with so many threads."""
        assert self._process.stdin is not None
        question = {"prompts": [list(prompt) for prompt in prompts], "tokens": tokens, "threads": threads}
        try:
            self._process.stdin.write(json.dumps(question).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._failure("has ended") from None
        reply = self._reply(ASK_S)
        return Timing(
            prompt_s=reply["prompt_s"],
            decode_s=reply["decode_s"],
            decoded=(tokens - 1) * len(prompts),
            ids=tuple(map(tuple, reply["ids"])),
        )

    def stop(self) -> None:
        """End it, whatever it does."""
        try:
            self._process.communicate(timeout=END_S)  # which closes its stdin
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate(timeout=END_S)

    def _reply(self, within_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        deadline = time.monotonic() + within_s
        while not select.select([self._process.stdout], [], [], 0.5)[0]:  # an end of file is readable too
            if time.monotonic() > deadline:
                raise self._failure(f"says nothing for {within_s:g} s")
        line = self._process.stdout.readline()
        if not line:
            raise self._failure("has ended")
        return dict(json.loads(line))

    def _failure(self, what: str) -> ExpertmeshError:
        self._log.seek(0)
        lines = self._log.read().decode("utf-8", "replace").strip().splitlines()
        return ExpertmeshError(f"llama.cpp ({self.layout}) {what}" + (f": {lines[-1]}" if lines else ""))


@dataclass(frozen=True, slots=True)
class LlamaSide:
    """A process, asked with a certain number of threads."""

    process: LlamaProcess
    threads: int
    program: str = "llama.cpp"
    workers: int = 0

    @property
    def name(self) -> str:
        """See sides.Side."""
        return f"{counted(self.threads, 'thread')}, {self.process.layout}"

    @property
    def label(self) -> str:
        """See sides.Side."""
        return self.process.layout

    def ask(self, prompts: Prompts, tokens: int) -> Timing:
        """See sides.Side."""
        return self.process.ask(prompts, tokens, self.threads)

    def pids(self) -> list[int]:
        """See sides.Side."""
        return [self.process.pid]


@contextmanager
def llama_process(
    python: Path, model: Path, context: int, *, repack: bool, sequences: int = 1
) -> Iterator[LlamaProcess]:
    """A process that has loaded the model, with room for so many positions of each of so many sequences."""
    with tempfile.TemporaryFile() as log:
        process = LlamaProcess(python, model, context, log, repack=repack, sequences=sequences)
        try:
            process.started()
            yield process
        finally:
            process.stop()
