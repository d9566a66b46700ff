"""docs/protocol.md says what the code does: every message, field, type, bound and version, and nothing else."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from coordinator import client, hello, launcher, main
from protocol import codec, endpoints, messages, wire
from protocol import fields as field_module
from protocol.holder import control, membership, serve
from protocol.messages import PROTOCOL, Any_, Message, Spec

PAGE = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")
CLASSES: dict[str, type[Message]] = {cls.__name__: cls for cls in get_args(Any_)}
NUMPY_NAMES = {"i1": "int8", "u1": "uint8", "i4": "int32", "i8": "int64", "f4": "float32"}
PLAIN_NAMES: dict[Any, str] = {int: "int", float: "float", str: "text", dict[str, Any]: "any map"}


def section(title: str, level: int = 2) -> str:
    """The text under a heading, up to the next one of its level or above."""
    match = re.search(rf"^{'#' * level} {re.escape(title)}\n(.*?)(?=^#{{1,{level}}} |\Z)", PAGE, re.M | re.S)
    assert match, f"no section {title!r}"
    return match[1]


def table(text: str) -> list[list[str]]:
    """The rows of the table in a section, without its heading."""
    rows = [line.strip().strip("|").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]


def in_words(annotation: Any) -> str:
    """A field's type as the page writes it, of an array without the names of its dimensions."""
    for spec in getattr(annotation, "__metadata__", ()):
        if isinstance(spec, Spec):
            return f"{NUMPY_NAMES[spec.dtype]} of {spec.dimensions}"
    if annotation in PLAIN_NAMES:
        return PLAIN_NAMES[annotation]
    arguments = get_args(annotation)
    return f"{'list' if get_origin(annotation) is list else 'map'} of {in_words(arguments[-1])}"


def without_dimensions(words: str) -> str:
    """`int8 (rows, width)` becomes `int8 of 2`."""
    match = re.fullmatch(r"(\w+) \((.*)\)", words)
    return f"{match[1]} of {len(match[2].split(','))}" if match else words


def answers(text: str) -> set[str]:
    """The kinds in the sentence `Answered by ...`."""
    match = re.search(r"Answered by ([^.]*)\.", " ".join(text.split()))
    return set(re.findall(r"\w+", match[1])) & CLASSES.keys() if match else set()


def test_the_page_has_every_message_in_the_order_of_the_code_and_no_other() -> None:
    assert re.findall(r"^### (\w+)$", section("Messages"), re.M) == list(CLASSES)
    defined = [
        name
        for name, value in vars(messages).items()
        if isinstance(value, type) and issubclass(value, Message) and value is not Message
    ]
    assert set(defined) == set(CLASSES)


@pytest.mark.parametrize("kind", CLASSES)
def test_fields_and_types_are_those_of_the_class(kind: str) -> None:
    cls = CLASSES[kind]
    hints = get_type_hints(cls, include_extras=True)
    in_code = [(field.name, in_words(hints[field.name])) for field in fields(cls)]
    text = section(kind, level=3)
    on_page = [(name, without_dimensions(type_)) for name, type_, _ in table(text)]
    assert on_page == in_code
    assert ("No fields." in text) == (not in_code)


@pytest.mark.parametrize("kind", CLASSES)
def test_who_says_it_and_what_answers_it_is_what_the_class_says(kind: str) -> None:
    text, docstring = section(kind, level=3), CLASSES[kind].__doc__ or ""
    speaker = re.match(r"\s*\*\*(.+?)\*\*", text)
    assert speaker, "begins with who says it to whom, in bold"
    assert docstring.startswith(speaker[1])
    assert answers(text) == answers(docstring)


def test_bounds_are_those_of_the_code() -> None:
    for name, value, _ in table(section("Framing and bounds")):
        owners = [module for module in (codec, field_module, messages, wire) if hasattr(module, name)]
        assert owners, name
        assert str(getattr(owners[0], name)) == value, name


def test_names_are_as_long_as_the_code_allows() -> None:
    assert f"have {hello.MAX_NAME} printable characters at most" in section("Framing and bounds")
    assert f"fresh, 1 to {hello.MAX_NAME} printable characters" in section("Submit", level=3)


def test_queues_and_skips_are_those_of_the_code() -> None:
    traps = section("ZeroMQ's traps")
    assert f"{wire.SEND_QUEUE:,} messages wait to be sent and {wire.RECEIVE_QUEUE} to be read" in traps
    assert f"at most {wire.MAX_SKIPPED} malformed messages" in section("Dropped and counted")
    assert endpoints.check_endpoint("ipc://@name")


def test_deadlines_are_those_of_the_code() -> None:
    stated = {(who, what): how_long for who, what, how_long, _ in table(section("Deadlines"))}
    in_code = {
        ("worker", "Welcome or Refused"): membership.HELLO_AGAIN_S,
        ("worker", "BeatSeen"): membership.SILENCE_S,
        ("worker", "work"): serve.OPEN_AGAIN_S,
        ("worker, to leave", "any word of the coordinator"): membership.DRAIN_SILENCE_S,
        ("worker, after Stop", "the RunExperts in hand"): control.LEAVE_S,
        ("worker, leaving", "its last messages to be sent"): serve.FLUSH_S,
        ("coordinator, after Stop", "Stopped of every worker"): main.STOP_S,
        ("coordinator, leaving", "its last messages to be sent"): main.FLUSH_S,
        ("client", "news of its request"): client.PROBE_S,
        ("client", "news of its request, or that it is under way"): client.SILENCE_S,
        ("launcher", "the end of all, once it has sent SIGTERM to the coordinator"): launcher.ASKED_S,
        ("launcher", "the end of what is left"): launcher.TERM_S,
    }
    assert {key: stated[key] for key in in_code} == {key: f"{seconds:g} s" for key, seconds in in_code.items()}


def test_the_version_is_the_last_of_the_history() -> None:
    versions = [int(version) for version, _ in table(section("Version history"))]
    assert versions == list(range(1, PROTOCOL + 1))
