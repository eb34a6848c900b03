"""Lets the learner share the device's thread with the engine, call by call."""

from collections.abc import Callable
from concurrent import futures
import dataclasses
from typing import Any

import jax

from arl_jax.learner.update import UpdateFns


def take_turns(
  fns: UpdateFns,
  device: futures.Executor,
  *,
  on_call: Callable[[], None] = lambda: None,
) -> UpdateFns:
  """Returns the pieces of an update, each call of them a turn of the device.

  An update is many calls. Between two of them the engine may decode what has
  arrived meanwhile: if it had to wait for the whole update, tools would finish,
  nobody would decode for them, and the device would idle when it ends.

  Args:
    fns: the compiled pieces.
    device: the one thread that device work runs on. Call the result from
      another one, for it waits.
    on_call: called after every turn.
  """

  def in_turn(fn: Callable[..., Any]) -> Callable[..., Any]:
    def work(*args: Any, **kwargs: Any) -> Any:
      return jax.block_until_ready(fn(*args, **kwargs))

    def call(*args: Any, **kwargs: Any) -> Any:
      result = device.submit(work, *args, **kwargs).result()
      on_call()
      return result

    return call

  return dataclasses.replace(
    fns,
    zeros=None if fns.zeros is None else in_turn(fns.zeros),
    gradient=in_turn(fns.gradient),
    apply=in_turn(fns.apply),
    logprobs=in_turn(fns.logprobs),
  )
