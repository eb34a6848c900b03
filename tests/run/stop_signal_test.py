"""The first signal is a request, the second an end."""

import os
import signal

import pytest

from arl_jax.run.stop_signal import StopSignal


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_is_a_request(number, capsys):
  before = signal.getsignal(number)
  with StopSignal() as stop:
    assert not stop.requested
    os.kill(os.getpid(), number)
    assert stop.requested
  assert "stopping after this step" in capsys.readouterr().out
  assert signal.getsignal(number) == before


def test_the_second_signal_ends():
  with StopSignal() as stop:
    os.kill(os.getpid(), signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt):
      os.kill(os.getpid(), signal.SIGINT)
    assert stop.requested
