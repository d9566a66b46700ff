"""llama.cpp as one side of a comparison: holds a model, and times what it is asked to do. No import of ours.

    python -P llama_side.py --model FILE --context N [--sequences N] [--no-repack]

The first line on stdout tells what was loaded. Each line on stdin is a question, {"prompts": [[...], ...], "tokens": n,
"threads": n}; its answer is a line {"prompt_s": ..., "decode_s": ..., "ids": [[...], ...]}. Ends with its stdin.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from typing import Any

import llama_cpp
import numpy as np

MICRO_BATCH = 512
"""llama.cpp's own default: prompt rows that go through the layers together."""

ROOM_STEP = 256


def _log(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    """The library tells of its progress at length; only warnings (3) and errors (4) matter here."""
    if level in (3, 4):
        sys.stderr.write(text.decode("utf-8", "replace"))


LOG = llama_cpp.llama_log_callback(_log)  # the library keeps a pointer to it


class Llama:
    """One model and one context of it on the processor."""

    def __init__(self, model: str, context: int, sequences: int, *, repack: bool) -> None:
        """Room for `context` tokens of each sequence, in a cache of its own; the library wants whole steps of it."""
        llama_cpp.llama_log_set(LOG, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        of_model = llama_cpp.llama_model_default_params()
        of_model.n_gpu_layers = 0
        of_model.use_extra_bufts = repack
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), of_model)
        if self._model is None:
            raise SystemExit(f"error: llama.cpp cannot load {model}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = room = -(-context // ROOM_STEP) * ROOM_STEP * sequences
        settings.n_ubatch = MICRO_BATCH
        settings.n_seq_max = sequences
        settings.offload_kqv = settings.op_offload = False
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        if self._context is None:
            raise SystemExit(f"error: llama.cpp cannot make a context of {context} positions")
        self._batch = llama_cpp.llama_batch_init(room, 0, 1)
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def answer(self, prompts: list[list[int]], tokens: int, threads: int) -> dict[str, Any]:
        """Greedy tokens after each prompt; the prompts go in as one batch, then a token of each. Times in seconds."""
        llama_cpp.llama_set_n_threads(self._context, threads, threads)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        began = time.perf_counter()
        answers = [[token] for token in self._next(prompts, [0] * len(prompts))]
        first = time.perf_counter()
        while len(answers[0]) < tokens:
            positions = [len(prompt) + len(ids) - 1 for prompt, ids in zip(prompts, answers, strict=True)]
            for ids, token in zip(answers, self._next([ids[-1:] for ids in answers], positions), strict=True):
                ids.append(token)
        last = time.perf_counter()
        return {"prompt_s": first - began, "decode_s": last - first, "ids": answers}

    def _next(self, parts: list[list[int]], positions: list[int]) -> list[int]:
        """The likeliest token after each sequence, which has grown by `parts` from `positions` on."""
        batch, last = self._batch, []
        batch.n_tokens = sum(map(len, parts))
        at = 0
        for sequence, (ids, position) in enumerate(zip(parts, positions, strict=True)):
            for index, token in enumerate(ids):
                batch.token[at], batch.pos[at] = token, position + index
                batch.n_seq_id[at], batch.seq_id[at][0] = 1, sequence
                batch.logits[at] = index == len(ids) - 1
                at += 1
            last.append(at - 1)
        code = llama_cpp.llama_decode(self._context, batch)
        if code != 0:
            raise SystemExit(f"error: llama_decode returned {code}")
        return [self._likeliest(row) for row in last]

    def _likeliest(self, row: int) -> int:
        logits = llama_cpp.llama_get_logits_ith(self._context, row)
        return int(np.argmax(np.ctypeslib.as_array(logits, (self._vocabulary,))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--sequences", type=int, default=1, help="answered at once, at most")
    parser.add_argument("--no-repack", action="store_true", help="compute with the file's own layout of the weights")
    options = parser.parse_args()
    llama = Llama(options.model, options.context, options.sequences, repack=not options.no_repack)
    features = llama_cpp.llama_print_system_info().decode()
    _put({"version": llama_cpp.__version__, "features": features})
    for line in sys.stdin:
        _put(llama.answer(**json.loads(line)))


def _put(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
