import functools
import pathlib

import numpy as np
import pytest

from experiments.kl_gradients import study

README = pathlib.Path(study.__file__).parent / "README.md"


@functools.cache
def _measured():
  return study.measure()


def _columns(name: str, sampled_by: str = "π") -> np.ndarray:
  """Value, size, off reverse, off forward, each for all policies."""
  return _measured()[name, sampled_by].T


def test_every_policy_is_measured():
  value, *_ = _columns("k1")
  assert value.shape == (len(study.SIZES) * len(study.SEEDS),)


def test_k1_as_a_loss_has_no_expected_gradient():
  value, size, _, _ = _columns("k1")
  np.testing.assert_allclose(value, 1.0, atol=1e-5)
  np.testing.assert_allclose(size, 0.0, atol=2e-6)


@pytest.mark.parametrize(
  ("name", "sampled_by"),
  [
    ("k1 in the reward", "π"),
    ("k2", "π"),
    ("k3_unbiased", "π"),
    ("k3_unbiased", "an older π"),
  ],
)
def test_gradient_of_the_reverse_kl(name: str, sampled_by: str):
  _, _, off_reverse, off_forward = _columns(name, sampled_by)
  np.testing.assert_allclose(off_reverse, 0.0, atol=5e-6)
  assert off_forward.min() > 0.1


def test_k3_has_the_gradient_of_the_forward_kl():
  value, _, off_reverse, off_forward = _columns("k3")
  np.testing.assert_allclose(value, 1.0, atol=1e-5)
  np.testing.assert_allclose(off_forward, 0.0, atol=5e-6)
  assert off_reverse.min() > 0.1


@pytest.mark.parametrize("name", ["k2", "k3"])
def test_unweighted_losses_miss_both_when_an_older_policy_sampled(name: str):
  _, _, off_reverse, off_forward = _columns(name, "an older π")
  assert min(off_reverse.min(), off_forward.min()) > 0.1


def test_the_readme_shows_what_the_command_prints():
  assert study.table(_measured()) in README.read_text(encoding="utf-8")
