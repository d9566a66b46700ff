"""Speed of expertmesh and of llama.cpp on the same file, threads and machine, in turns. docs/comparison.md explains it.

    python -P tests/support/moe_models.py bench-mid.gguf --preset bench-mid
    python -P tests/benchmarks/beside_llama.py --model bench-mid.gguf --llama-python .venv-llama/bin/python

Prints what belongs under the last heading of docs/comparison.md; progress goes to stderr.
"""

from __future__ import annotations

import argparse
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import interruptible
from benchmark_page import heading
from comparison import Comparison
from comparison_table import own_ratios, remarks, speeds
from starts import starts_table
from targets import targets_table

from coordinator.interrupts import Interrupts

PARTS = ("start", "prefill", "decode", "many")
NOT_MEASURED = "llama.cpp not measured: not installed, see docs/comparison.md"


def compare(options: argparse.Namespace, interrupts: Interrupts) -> None:
    """Measure, then print."""
    title = heading("Figures")  # the load is that before the start
    python = options.llama_python or (Path(sys.executable) if find_spec("llama_cpp") else None)
    deadline = time.monotonic() + options.within_s
    with Comparison(options, python, deadline) as comparison:
        run = comparison.run(interrupts)
    files = ", ".join(path.name for path in (options.model, options.our_model) if path is not None)
    facts = NOT_MEASURED if python is None else comparison.llama_facts or "of llama.cpp nothing but its start"
    print(f"{title}\n{files}; {facts}.\n")
    print(f"{targets_table(run)}")
    if run.samples:
        print(speeds(run.samples))
        print(own_ratios(run.samples))
    if run.starts:
        print(starts_table(run.starts))
    print(remarks(run.samples), end="")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--model", type=Path, required=True)
    add("--our-model", type=Path, metavar="PACK", help="the same model in another file, which expertmesh takes as well")
    add("--llama-python", type=Path, metavar="PATH", help="an interpreter with llama-cpp-python; this one if it has it")
    add("--llama", nargs="+", choices=("repacked", "plain"), default=["repacked", "plain"], help="layouts of weights")
    add("--only", nargs="+", choices=PARTS, default=list(PARTS), help="what is measured")
    add("--workers", nargs="+", type=int, default=[0, 2])
    add("--threads", nargs="+", type=int, default=[1, 2])
    add("--rounds", type=int, default=3)
    add("--prompt", type=int, default=512, help="tokens of the prompt whose reading is timed")
    add("--tokens", type=int, default=64, help="tokens whose generation is timed")
    add("--sequences", type=int, default=16, help="requests at once, for those with the most threads")
    add("--their-prompt", type=int, default=32, help="tokens of the prompt of each of these")
    add("--their-tokens", type=int, default=32, help="tokens whose generation is timed, of each of these")
    add("--start-rounds", type=int, default=5)
    add("--read-gb", type=float, default=1.0, help="of memory, and of the model, that are read to find the limit")
    add("--within-s", type=float, default=1500.0, help="no answer is begun later than this")
    add("--settle-s", type=float, default=3.0, help="how long a good machine check is waited for before an answer")
    options = parser.parse_args()
    interruptible.run(parser, lambda interrupts: compare(options, interrupts))


if __name__ == "__main__":
    main()
