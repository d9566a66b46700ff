"""Key files: what is read, what is refused, and that no secret shows."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from key_folders import key_folder, secrets_of, take_back

from coordinator.key_files import add_key
from protocol.errors import ConfigError
from protocol.keys import ALLOWED_FOLDER, AllowList, DialKeys, ListenKeys, giving_keys, is_key
from protocol.wire import new_pair, public_of


class Clock:
    """Time that passes when it is told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return key_folder(tmp_path / "keys", "garage")


def test_secrets_are_for_their_owner_and_nobody_else(folder: Path) -> None:
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")}
    assert modes == {
        "allowed": 0o700,
        "server.key": 0o600,
        "client.key": 0o600,
        "garage.key": 0o600,
        "client.pub": 0o644,
        "garage.pub": 0o644,
    }
    for name in ("client.key", "garage.key"):
        os.chmod(folder / name, 0o640)
        with pytest.raises(ConfigError, match="others may read it, mode 0640 found, 0600 expected"):
            DialKeys.load(folder / name)


def test_each_key_is_another_one_and_names_its_coordinator(folder: Path) -> None:
    assert len(set(secrets_of(folder))) == 3
    listening = ListenKeys.load(folder)
    for name in ("client", "garage"):
        keys = DialKeys.load(folder / f"{name}.key")
        assert keys.coordinator == public_of(listening.secret)
        assert listening.allowed.name_of(public_of(keys.secret)) == name
    assert DialKeys.load(folder) == DialKeys.load(folder / "client.key")
    assert listening.allowed.name_of(new_pair()[0]) is None
    assert listening.allowed.name_of("") is None


def test_no_secret_is_shown(folder: Path) -> None:
    shown = repr(DialKeys.load(folder)) + repr(ListenKeys.load(folder))
    assert not [secret for secret in secrets_of(folder) if secret in shown]


def test_there_is_one_key_of_a_name_and_one_coordinator(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match="is there already"):
        key_folder(folder)
    with pytest.raises(ConfigError, match="is there already"):
        add_key(folder, "garage")
    with pytest.raises(ConfigError, match="a key cannot be called 'server'"):
        add_key(folder, "server")
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before


def test_who_gives_has_a_folder_with_a_key_of_its_own(folder: Path) -> None:
    secret, ours, allowed = add_key(folder, "attic", gives=True)
    assert (secret, ours, allowed) == (
        folder / "attic" / "server.key",
        folder / "attic" / "client.key",
        folder / ALLOWED_FOLDER / "attic.pub",
    )
    dials, gives = DialKeys.load(folder / "attic"), giving_keys(folder / "attic")
    coordinator = ListenKeys.load(folder)
    assert dials.coordinator == public_of(coordinator.secret)
    assert coordinator.allowed.name_of(public_of(dials.secret)) == "attic"
    assert gives.secret not in (coordinator.secret, dials.secret)
    for other in (folder / "garage.key", folder, folder / "attic"):
        assert gives.allowed.name_of(public_of(DialKeys.load(other).secret)) is not None
    assert {path.stat().st_mode & 0o777 for path in (secret, ours)} == {0o600}
    with pytest.raises(ConfigError, match="to listen with, too: a folder of both is expected"):
        giving_keys(folder / "garage.key")


@pytest.mark.parametrize("taken", ["attic", "allowed/attic.pub"])
def test_a_folder_is_made_whole_or_not_at_all(folder: Path, taken: str) -> None:
    (folder / taken).touch()
    before = set(folder.rglob("*"))
    with pytest.raises(ConfigError):
        add_key(folder, "attic", gives=True)
    assert set(folder.rglob("*")) == before


@pytest.mark.parametrize(
    "content", [b"", b"\xff" * 40, b"secret = x", b'secret = "short"', b'secret = "' + b"#" * 40 + b'"', b"\0" * 9000]
)
def test_what_is_no_key_is_not_repeated(folder: Path, content: bytes) -> None:
    (folder / "client.key").write_bytes(content)
    with pytest.raises(ConfigError) as refused:
        DialKeys.load(folder)
    assert str(refused.value) == (
        f'keys: {folder}/client.key: no key file: a line secret = "40 characters" is expected'
    )


def test_a_pipe_is_not_waited_for(folder: Path) -> None:
    (folder / "client.key").unlink()
    os.mkfifo(folder / "client.key", 0o600)
    with pytest.raises(ConfigError, match="no key file"):
        DialKeys.load(folder)


def test_what_32_bytes_look_like() -> None:
    assert all(is_key(half) for _ in range(20) for half in new_pair())
    assert not is_key("0" * 39)
    assert not is_key("0" * 39 + '"')
    assert not is_key("#####" * 8)  # beyond 32 bits


def test_the_list_follows_its_folder(folder: Path) -> None:
    clock = Clock()
    allowed = AllowList(folder / ALLOWED_FOLDER, clock)
    garage = public_of(DialKeys.load(folder / "garage.key").secret)
    add_key(folder, "attic")
    attic = public_of(DialKeys.load(folder / "attic.key").secret)
    assert allowed.name_of(attic) is None  # it has just looked
    clock.now += 1
    assert (allowed.name_of(attic), allowed.name_of(garage), allowed.taken_back) == ("attic", "garage", 0)
    take_back(folder, "garage")
    (folder / ALLOWED_FOLDER / "odd.pub").write_text("nothing")
    clock.now += 1
    assert (allowed.name_of(attic), allowed.name_of(garage), allowed.taken_back) == ("attic", None, 1)
    for path in (folder / ALLOWED_FOLDER).iterdir():
        path.unlink()
    (folder / ALLOWED_FOLDER).rmdir()
    clock.now += 1
    assert (allowed.name_of(attic), len(allowed), allowed.taken_back) == (None, 0, 2)


def test_a_bad_file_among_the_allowed_is_told_at_the_start(folder: Path) -> None:
    (folder / ALLOWED_FOLDER / "odd.pub").write_text("nothing")
    with pytest.raises(ConfigError, match=r'odd\.pub: no key file: a line public = "40 characters" is expected'):
        ListenKeys.load(folder)
