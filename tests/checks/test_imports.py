"""The check of import direction finds what it must find, and the tree passes it."""

from __future__ import annotations

from pathlib import Path

import imports
import pytest

ROOT = Path(__file__).parents[2]


def violations_of(tmp_path: Path, path: str, text: str) -> list[str]:
    file = tmp_path / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return imports.violations(tmp_path)


def test_the_tree_passes() -> None:
    assert imports.violations(ROOT) == []


def test_the_tree_is_what_the_check_looks_at() -> None:
    for package in imports.OURS:
        assert (ROOT / package / "__init__.py").is_file()


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocol/a.py", "import coordinator.engine"),
        ("protocol/a.py", "def f():\n    from native import Pool"),
        ("protocol/a.py", "from protocol.holder import serve"),
        ("protocol/holder/a.py", "from expert_worker.bank import ExpertBank"),
        ("native/a.py", "from protocol import errors"),
        ("expert_worker/a.py", "import coordinator"),
        ("expert_worker/a.py", "from peer_gpu.slots import Slots"),
        ("peer_gpu/a.py", "from expert_worker import bank"),
        ("coordinator/a.py", "from expert_worker.main import main"),
        ("coordinator/a.py", "import expert_worker"),
        ("coordinator/cli/a.py", "from expert_worker import main"),
        ("expert_worker/a.py", "import zmq"),
        ("coordinator/cli/a.py", "from zmq.utils import monitor"),
        ("protocol/deep/wire.py", "import zmq"),
        ("protocol/a.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import coordinator"),
    ],
)
def test_an_import_against_the_direction_is_found(tmp_path: Path, path: str, text: str) -> None:
    (found,) = violations_of(tmp_path, path, text)
    assert found.startswith(f"{path}:{len(text.splitlines())}: ")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("protocol/wire/a.py", "import zmq"),
        ("protocol/a.py", "from protocol import errors\nfrom . import messages\nimport numpy"),
        ("protocol/holder/a.py", "import native\nfrom protocol.errors import ModelError\nfrom . import serve"),
        ("expert_worker/a.py", "import native\nfrom protocol.errors import ModelError"),
        ("coordinator/a.py", "from expert_worker.bank import ExpertBank\nfrom peer_gpu import slots"),
        ("coordinator/cli/a.py", "from ..config import read\nfrom . import up\nimport zmq_like"),
    ],
)
def test_an_import_along_the_direction_is_not(tmp_path: Path, path: str, text: str) -> None:
    assert violations_of(tmp_path, path, text) == []


def test_main_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    violations_of(tmp_path, "native/a.py", "\nimport zmq")
    assert imports.main([str(tmp_path)]) == 1
    assert capsys.readouterr().out == "native/a.py:2: only protocol/wire may import zmq\n"
