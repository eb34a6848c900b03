"""Tests of running a coroutine without a loop."""

import asyncio

import pytest

from arl_jax.envs.inline import run_inline


async def three():
  return 3


async def add_to_three(number):
  return number + await three()


def test_it_returns_the_result():
  assert run_inline(add_to_three(2)) == 5


def test_it_works_inside_a_running_loop():
  async def outer():
    return run_inline(add_to_three(4))

  assert asyncio.run(outer()) == 7


def test_waiting_is_refused():
  with pytest.raises(RuntimeError, match="a coroutine that waits"):
    run_inline(asyncio.sleep(0))
