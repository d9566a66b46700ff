"""`expert_worker.main` started as if with a model: what `--model` names is its cache."""

from __future__ import annotations

import os
import sys

from expert_worker.main import main

if __name__ == "__main__":
    code = main(["--cache" if argument == "--model" else argument for argument in sys.argv[1:]])
    sys.stderr.flush()
    os._exit(code)
