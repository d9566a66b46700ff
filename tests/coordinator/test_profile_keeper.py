"""When a profile is read and written: at the start, at rest, now and then without rest, and at the end."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from coordinator import profile_keeper
from coordinator.profile import Profile
from coordinator.profile_file import read_profile, write_profile
from coordinator.profile_keeper import BUSY_SAVE_S, IDLE_SAVE_S, Keeper
from protocol.errors import ConfigError
from protocol.model import Model


class Clock:
    """Stands still until it is set."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def model(small_model: Callable[[str], Path]) -> Iterator[Model]:
    with Model.open(small_model("q8_0")) as model:
        yield model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.profile"


def use(keeper: Keeper, expert: int = 1, times: int = 1) -> None:
    keeper.recorder.take([(0, np.full((times, 1), expert, np.int32))], times)


def test_what_is_not_there_is_empty_and_made_at_once(path: Path, model: Model) -> None:
    keeper = Keeper(path, model)
    assert keeper.rank is None
    found = read_profile(path)
    assert (found.fingerprint, found.rows, found.uses) == (model.fingerprint, 0, 0.0)
    assert found.counts.shape == (len(model.layout.layers), model.layout.experts)


def test_what_is_there_is_gone_on_with_and_ranks(path: Path, model: Model) -> None:
    for _ in range(2):
        keeper = Keeper(path, model)
        use(keeper, expert=2, times=3)
        keeper.save()
    assert read_profile(path).counts[0, 2] == 6
    rank = Keeper(path, model).rank
    assert rank is not None
    assert (rank[0, 2], rank[0, 0]) == (0, 1)


@pytest.mark.parametrize(("idle", "after_s"), [(True, IDLE_SAVE_S), (False, BUSY_SAVE_S)])
def test_at_rest_it_is_saved_soon_and_without_rest_later(path: Path, model: Model, idle: bool, after_s: float) -> None:
    clock = Clock()
    keeper = Keeper(path, model, clock)
    for saved in (0, 1):
        use(keeper)
        clock.now += after_s - 0.1
        keeper.turn(idle=idle)
        assert read_profile(path).rows == saved
        clock.now += 0.1
        keeper.turn(idle=idle)
        assert read_profile(path).rows == saved + 1


def test_what_did_not_change_is_not_written(path: Path, model: Model) -> None:
    clock = Clock()
    keeper = Keeper(path, model, clock)
    path.unlink()
    clock.now += 10 * BUSY_SAVE_S
    keeper.turn(idle=True)
    keeper.save()
    assert not path.exists()


def test_a_failure_to_save_is_told_once_and_tried_again(
    path: Path, model: Model, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    keeper = Keeper(path, model)
    use(keeper)

    def fails(*anything: object, **more: object) -> None:
        raise ConfigError("--profile: no room")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING):
        patched.setattr(profile_keeper, "write_profile", fails)
        keeper.save()
        keeper.save()
    assert caplog.messages == ["the profile was not saved: --profile: no room"]
    assert read_profile(path).rows == 0
    keeper.save()
    assert read_profile(path).rows == 1


def test_another_models_profile_is_refused_and_stays(path: Path, model: Model) -> None:
    foreign = Profile(fingerprint="f" * 16, rows=3, counts=np.ones((2, 2)))
    write_profile(foreign, path, option="--out")
    before = path.read_bytes()
    with pytest.raises(ConfigError, match=f"of the model {'f' * 16}, expected {model.fingerprint}"):
        Keeper(path, model)
    assert path.read_bytes() == before


def test_where_nothing_can_be_written_it_is_told_at_the_start(tmp_path: Path, model: Model) -> None:
    with pytest.raises(ConfigError, match=r"--profile: .*/none/a\.profile cannot be written: No such file"):
        Keeper(tmp_path / "none" / "a.profile", model)


def test_the_model_is_never_replaced(model: Model) -> None:
    with pytest.raises(ConfigError, match="not a profile that can be used: it begins with b'GGUF"):
        Keeper(model.files.path, model)


def test_the_report_has_rows_and_how_few_experts_have_most_uses(path: Path, model: Model) -> None:
    keeper = Keeper(path, model)
    use(keeper, expert=0, times=95)
    use(keeper, expert=3, times=5)
    assert keeper.report() == {"rows": 100, "experts_90": 1}
