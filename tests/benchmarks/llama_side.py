"""llama.cpp as one side of a comparison: holds a model, and times what it is asked to do. No import of ours.

    python -P llama_side.py --model FILE --context N [--no-repack]

The first line on stdout tells what was loaded. Each line on stdin is a question, {"prompt_ids": [...], "tokens": n,
"threads": n}; its answer is a line {"prompt_s": ..., "decode_s": ..., "ids": [...]}. Ends with its stdin.
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


def _log(level: int, text: bytes, _: ctypes.c_void_p) -> None:
    """The library tells of its progress at length; only warnings (3) and errors (4) matter here."""
    if level in (3, 4):
        sys.stderr.write(text.decode("utf-8", "replace"))


LOG = llama_cpp.llama_log_callback(_log)  # the library keeps a pointer to it


class Llama:
    """One model and one context of it on the processor."""

    def __init__(self, model: str, context: int, *, repack: bool) -> None:
        llama_cpp.llama_log_set(LOG, ctypes.c_void_p())
        llama_cpp.llama_backend_init()
        of_model = llama_cpp.llama_model_default_params()
        of_model.n_gpu_layers = 0
        of_model.use_extra_bufts = repack
        self._model = llama_cpp.llama_model_load_from_file(model.encode(), of_model)
        if self._model is None:
            raise SystemExit(f"error: llama.cpp cannot load {model}")
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = context
        settings.n_ubatch = MICRO_BATCH
        settings.offload_kqv = settings.op_offload = False
        self._context = llama_cpp.llama_init_from_model(self._model, settings)
        if self._context is None:
            raise SystemExit(f"error: llama.cpp cannot make a context of {context} positions")
        self._vocabulary = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    def answer(self, prompt_ids: list[int], tokens: int, threads: int) -> dict[str, Any]:
        """Greedy tokens after the prompt, which goes in as one batch; times in seconds."""
        llama_cpp.llama_set_n_threads(self._context, threads, threads)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self._context), False)
        began = time.perf_counter()
        ids = [self._next(prompt_ids)]
        first = time.perf_counter()
        while len(ids) < tokens:
            ids.append(self._next(ids[-1:]))
        last = time.perf_counter()
        return {"prompt_s": first - began, "decode_s": last - first, "ids": ids}

    def _next(self, ids: list[int]) -> int:
        """The likeliest token after `ids` and all that went before."""
        row = (llama_cpp.llama_token * len(ids))(*ids)  # the batch points into it
        code = llama_cpp.llama_decode(self._context, llama_cpp.llama_batch_get_one(row, len(ids)))
        if code != 0:
            raise SystemExit(f"error: llama_decode returned {code}")
        logits = llama_cpp.llama_get_logits_ith(self._context, -1)
        return int(np.argmax(np.ctypeslib.as_array(logits, (self._vocabulary,))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--context", type=int, required=True)
    parser.add_argument("--no-repack", action="store_true", help="compute with the file's own layout of the weights")
    options = parser.parse_args()
    llama = Llama(options.model, options.context, repack=not options.no_repack)
    features = llama_cpp.llama_print_system_info().decode()
    _put({"version": llama_cpp.__version__, "features": features})
    for line in sys.stdin:
        _put(llama.answer(**json.loads(line)))


def _put(reply: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
