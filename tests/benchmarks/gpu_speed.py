"""Speed on a GPU: kernels, the model of 48 layers in one process, where its time goes, and clusters.

    python -P tests/support/moe_models.py wide-48.gguf --preset wide-48
    python -P tests/benchmarks/gpu_speed.py kernels
    python -P tests/benchmarks/gpu_speed.py model --model wide-48.gguf

Prints Markdown, row by row; `tests/gpu/on_gpu_machine.py` runs all of it and writes docs/gpu-results.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from gpu_cluster_speed import cluster_speed
from gpu_kernels import TINY, Sizes, kernels
from gpu_model_speed import Questions, model_speed, phases

from native import cuda

SECTIONS = ("kernels", "model", "phases", "clusters")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("section", choices=SECTIONS)
    add("--model", type=Path, help="for all but kernels")
    add("--device", default="cuda:0")
    add("--threads", type=int, default=14, help="of the processor's share, or of all workers together")
    add("--prompt", type=int, default=512, help="tokens of the prompt whose reading is timed")
    add("--tokens", type=int, default=64, help="tokens whose generation is timed")
    add("--rounds", type=int, default=3)
    add("--tiny", action="store_true", help="kernels on next to nothing, to try this out")
    options = parser.parse_args()
    questions = Questions(prompt=options.prompt, tokens=options.tokens, rounds=options.rounds)
    if options.section == "kernels":
        device = cuda.open_device(options.device)
        device.use()
        kernels(device, TINY if options.tiny else Sizes())
    elif options.model is None:
        parser.error("--model is needed")
    elif options.section == "model":
        model_speed(options.model, options.device, questions, options.threads)
    elif options.section == "phases":
        phases(options.model, options.device, questions, options.threads)
    else:
        with tempfile.TemporaryDirectory() as folder:
            cluster_speed(options.model, Path(folder), questions, options.threads)


if __name__ == "__main__":
    main()
