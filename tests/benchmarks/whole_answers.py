"""Whole answers from the command line, as a user gives it: time to the first token and speed, for 0, 1 and 2 workers.

python -P tests/support/moe_models.py /tmp/bench-mid.gguf --preset bench-mid
python -P tests/benchmarks/whole_answers.py --model /tmp/bench-mid.gguf
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmark_page import heading, table

GENERATE = [sys.executable, "-P", "-m", "coordinator.cli", "generate"]


def first_token_s(options: list[str]) -> float:
    """From the command to the first character of the answer."""
    began = time.perf_counter()
    process = subprocess.Popen([*GENERATE, *options], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert process.stdout is not None
    process.stdout.read(1)
    found = time.perf_counter() - began
    process.stdout.read()
    process.wait(timeout=60)
    return found


def answer(options: list[str]) -> dict[str, Any]:
    done = subprocess.run([*GENERATE, *options, "--json"], capture_output=True, text=True, timeout=600, check=True)
    return dict(json.loads(done.stdout))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(heading("Whole answers"))
    found: dict[int, list[list[float]]] = {0: [], 1: [], 2: []}
    digests = set()
    prompt = ["--prompt-ids", ",".join(str(i) for i in range(1, 129)), "--ignore-eos", "--model", str(options.model)]
    for _ in range(options.rounds):
        for workers, results in found.items():
            threads = options.threads if workers == 0 else 1
            common = [*prompt, "--workers", str(workers), "--threads", str(threads)]
            first = first_token_s([*common[2:], "--max-tokens", "1", "In the"])
            whole = answer([*common, "--max-tokens", str(options.tokens)])
            results.append([first, whole["prompt_tps"], whole["decode_tps"]])
            digests.add(whole["sha256_logits"])
    rows = [
        [workers, *(statistics.median(result[i] for result in results) for i in range(3))]
        for workers, results in found.items()
    ]
    print(table(["workers", "first token, s", "prompt of 128, tokens/s", f"{options.tokens} tokens/s"], rows))
    print(f"logits of all answers: {'the same bits' if len(digests) == 1 else 'DIFFERENT'}")


if __name__ == "__main__":
    main()
