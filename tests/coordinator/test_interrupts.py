"""Signals as one exception."""

from __future__ import annotations

import os
import signal

import pytest

from coordinator.interrupts import SIGNALS, Interrupted, Interrupts


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_raises_once_and_then_only_hurries(number: signal.Signals) -> None:
    before = [signal.getsignal(one) for one in SIGNALS]
    interrupts = Interrupts()

    def be_interrupted() -> None:
        with interrupts.caught():
            try:
                os.kill(os.getpid(), number)
            finally:
                assert not interrupts.hurried
                os.kill(os.getpid(), number)
                assert interrupts.hurried

    with pytest.raises(Interrupted) as caught:
        be_interrupted()
    assert caught.value.exit_code == 128 + number
    assert str(caught.value) == number.name
    assert [signal.getsignal(one) for one in SIGNALS] == before


def test_while_stopping_nothing_is_raised() -> None:
    interrupts = Interrupts()
    with interrupts.caught():
        interrupts.stopping()
        os.kill(os.getpid(), signal.SIGTERM)
        assert interrupts.hurried


def test_an_ignored_signal_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        interrupts = Interrupts()
        with interrupts.caught():
            os.kill(os.getpid(), signal.SIGHUP)
            assert not interrupts.hurried
            assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
