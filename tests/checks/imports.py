"""Check that imports point one way: `python tests/checks/imports.py [ROOT]` lists every import that does not.

Roles use `protocol` and `native`, never the reverse; of `protocol` only `protocol.holder`, unused by its rest, knows
the kernels, and only `protocol.step_frames` the native code of step messages. The coordinator may also use the
socket-free holders of experts: its local ones are the same classes. `protocol/wire/` alone knows ZeroMQ.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

OURS = ("coordinator", "expert_worker", "peer_gpu", "protocol", "native", "configs")

ALLOWED: dict[str, tuple[str, ...]] = {
    "protocol": ("protocol.step_frames",),
    "protocol.step_frames": ("protocol", "native"),
    "protocol.holder": ("protocol", "native"),
    "native": (),
    "configs": (),
    "expert_worker": ("protocol", "native"),
    "peer_gpu": ("protocol", "native"),
    "coordinator": ("protocol", "native", "expert_worker.bank", "peer_gpu.slots"),
}
"""What each package may import of ours, beside itself: a package, or one module of it. The longest name counts."""

ZMQ_USER = "protocol/wire"


def imported_modules(tree: ast.AST, package: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything that a module of `package` (dotted) imports, relative imports resolved.

    `from a import b` counts as `a.b`, since b may be a module.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            start = ".".join(filter(None, (base, node.module)))
            yield from ((node.lineno, f"{start}.{alias.name}") for alias in node.names)


def is_within(name: str, scope: str) -> bool:
    """True if the dotted `name` is `scope` or something inside it."""
    return name == scope or name.startswith(f"{scope}.")


def package_of(name: str) -> str | None:
    """The package of ours, as ALLOWED has it, in which the module with this dotted name lies; None if in none."""
    return max((package for package in ALLOWED if is_within(name, package)), key=len, default=None)


def problem(path: str, name: str) -> str | None:
    """Why the file at `path` (relative, with slashes) may not import `name`, or None."""
    if is_within(name, "zmq"):
        return None if path.startswith(f"{ZMQ_USER}/") else f"only {ZMQ_USER} may import zmq"
    owner = package_of(path.removesuffix(".py").replace("/", "."))
    if package_of(name) in (None, owner):
        return None
    assert owner is not None
    if any(is_within(name, scope) for scope in ALLOWED[owner]):
        return None
    return f"{owner} may import {', '.join(ALLOWED[owner]) or 'nothing of ours'}, not {name}"


def violations(root: Path) -> list[str]:
    """One line `file:line: reason` for each import under `root` that points the wrong way."""
    found = []
    for package in OURS:
        for file in sorted((root / package).rglob("*.py")):
            path = file.relative_to(root).as_posix()
            dotted = path.rsplit("/", 1)[0].replace("/", ".")
            for line, name in imported_modules(ast.parse(file.read_text("utf-8"), path), dotted):
                if reason := problem(path, name):
                    found.append(f"{path}:{line}: {reason}")
    return found


def main(arguments: list[str]) -> int:
    """Print the violations; 1 if there are any."""
    found = violations(Path(arguments[0]) if arguments else Path(__file__).parents[2])
    for line in found:
        print(line)
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
