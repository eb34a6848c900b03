"""Foreign code under a time limit: late, broken, cancelled or answered."""

import asyncio

import pytest

from arl_jax.envs.guarded_call import (
  BrokenError,
  LateError,
  call_guarded,
  describe_error,
)


class Panic(BaseException):
  """Such as libraries written in Rust raise."""


async def hang():
  await asyncio.Event().wait()


async def break_when_cancelled():
  try:
    await hang()
  finally:
    raise KeyError("clean-up")


async def swallow_cancellation():
  try:
    await hang()
  except asyncio.CancelledError:
    return "nevertheless"


async def answer():
  await asyncio.sleep(0)
  return 7


def run(call, seconds=30.0):
  return asyncio.run(call_guarded(call, timeout_seconds=seconds))


def test_an_answer_comes_back():
  assert run(answer) == 7


@pytest.mark.parametrize(
  "call", [hang, break_when_cancelled, swallow_cancellation]
)
def test_late_is_late_whatever_the_call_does_about_it(call):
  with pytest.raises(LateError, match=r"no answer within 0.005 seconds"):
    run(call, 0.005)


@pytest.mark.parametrize(
  "error",
  [
    KeyError("a"),
    TimeoutError("its own"),
    SystemExit(3),
    asyncio.CancelledError(),
    Panic("rust"),
  ],
)
def test_whatever_the_call_raises_is_its_failure(error):
  async def call():
    await asyncio.sleep(0)
    raise error

  with pytest.raises(BrokenError) as caught:
    run(call)
  assert caught.value.error is error


def test_a_call_that_does_not_start_is_broken_too():
  with pytest.raises(BrokenError, match="ZeroDivisionError"):
    run(lambda: 1 // 0)  # pyright: ignore[reportArgumentType]


def test_an_interrupt_from_the_keyboard_passes():
  async def call():
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    run(call)


@pytest.mark.parametrize(
  "call", [hang, break_when_cancelled, swallow_cancellation]
)
def test_cancellation_passes_whatever_the_call_does_about_it(call):
  async def main():
    started = asyncio.Event()

    async def begin():
      started.set()
      return await call()

    task = asyncio.create_task(call_guarded(begin, timeout_seconds=30))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
      await task

  asyncio.run(main())


@pytest.mark.parametrize(
  "call", [hang, break_when_cancelled, swallow_cancellation]
)
def test_a_limit_around_it_holds_whatever_the_call_does_about_it(call):
  async def main():
    async with asyncio.timeout(0.005):
      await call_guarded(call, timeout_seconds=30)

  with pytest.raises(TimeoutError):
    asyncio.run(main())


def test_the_limit_leaves_no_trace_on_the_task():
  async def main():
    for _ in range(3):
      with pytest.raises(LateError):
        await call_guarded(swallow_cancellation, timeout_seconds=0.001)
    assert await call_guarded(answer, timeout_seconds=30) == 7
    task = asyncio.current_task()
    return task is not None and task.cancelling()

  assert asyncio.run(main()) == 0


def test_an_error_without_a_readable_text_is_described():
  class Unreadable(Exception):
    def __str__(self):
      raise ValueError

  assert describe_error(Unreadable()) == "Unreadable: <no readable text>"
  assert describe_error(KeyError()) == "KeyError"
