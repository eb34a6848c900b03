"""Blocking code in threads: results, late ones, and how many may hang."""

import asyncio
import contextvars
import threading

import pytest

from arl_jax.envs import off_loop
from arl_jax.envs.environment import StepResult
from arl_jax.envs.off_loop import (
  OffLoopEnvironment,
  TooManyCallsError,
  call_off_loop,
)
from arl_jax.episode import Message, Task

PATIENCE = 60  # seconds, for what must happen
TASK = Task(task_id="t", prompt="go")


async def until(happened):
  """Waits for what threads do."""
  async with asyncio.timeout(PATIENCE):
    while not happened():  # noqa: ASYNC110
      await asyncio.sleep(0.001)


@pytest.fixture
def release():
  """Ends the calls that a test leaves hanging, before the next test."""
  event = threading.Event()
  yield event
  event.set()
  for thread in threading.enumerate():
    if thread.name == "stuck":
      thread.join(PATIENCE)


def test_it_returns_the_result_of_another_thread():
  def function(a, *, b):
    return a + b, threading.current_thread()

  result, thread = asyncio.run(call_off_loop(function, 1, b=2, name="adds"))
  assert result == 3
  assert thread is not threading.main_thread()
  assert thread.name == "adds"
  assert thread.daemon


@pytest.mark.parametrize("error", [KeyError("a"), TimeoutError("b")])
def test_it_raises_what_the_function_raised(error):
  def function():
    raise error

  with pytest.raises(type(error)) as caught:
    asyncio.run(call_off_loop(function))
  assert caught.value is error


@pytest.mark.parametrize(
  "kind", [KeyboardInterrupt, GeneratorExit, asyncio.CancelledError]
)
def test_a_thread_cannot_interrupt_whoever_waits(kind):
  def function():
    raise kind

  with pytest.raises(RuntimeError, match=f"reads raised {kind.__name__}"):
    asyncio.run(call_off_loop(function, name="reads"))


def test_calls_run_at_once_and_the_loop_goes_on():
  barrier = threading.Barrier(17)

  async def main():
    calls = [
      asyncio.create_task(call_off_loop(barrier.wait, PATIENCE))
      for _ in range(16)
    ]
    # The sixteen are let go by the loop itself, which can do this only if none
    # of them holds it up.
    await until(lambda: barrier.n_waiting == 16)
    barrier.wait(PATIENCE)
    return await asyncio.gather(*calls)

  assert len(asyncio.run(main())) == 16


def test_context_variables_reach_the_thread():
  name = contextvars.ContextVar("name", default="none")

  async def main():
    name.set("episode 3")
    return await call_off_loop(name.get)

  assert asyncio.run(main()) == "episode 3"


@pytest.mark.parametrize("outcome", ["value", KeyError("late")])
def test_what_comes_too_late_is_dropped(release, outcome):
  complaints = []

  def function():
    release.wait(PATIENCE)
    if isinstance(outcome, Exception):
      raise outcome
    return outcome

  async def main():
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: complaints.append(context))
    before = off_loop.num_calls_alive()
    with pytest.raises(TimeoutError):
      async with asyncio.timeout(0.005):
        await call_off_loop(function, name="stuck")
    assert off_loop.num_calls_alive() == before + 1
    release.set()
    await until(lambda: off_loop.num_calls_alive() == before)
    # A thread delivers after it has left; its name is gone once it has.
    await until(lambda: "stuck" not in [t.name for t in threading.enumerate()])
    await asyncio.sleep(0)

  asyncio.run(main())
  assert not complaints


def test_the_loop_may_be_closed_when_the_result_comes(release, monkeypatch):
  complaints = []
  monkeypatch.setattr(threading, "excepthook", complaints.append)

  async def main():
    with pytest.raises(TimeoutError):
      async with asyncio.timeout(0.005):
        await call_off_loop(release.wait, PATIENCE, name="stuck")

  asyncio.run(main())
  (thread,) = [t for t in threading.enumerate() if t.name == "stuck"]
  release.set()
  thread.join(PATIENCE)
  assert not thread.is_alive()
  assert not complaints


@pytest.mark.parametrize("closed", [True, False])
def test_a_coroutine_that_comes_too_late_is_closed(release, closed):
  made = []

  async def later():
    await asyncio.sleep(0)

  def function():
    release.wait(PATIENCE)
    made.append(later())
    return made[-1]

  async def main():
    with pytest.raises(TimeoutError):
      async with asyncio.timeout(0.005):
        await call_off_loop(function, name="stuck")
    if not closed:
      release.set()
      await until(lambda: made and made[0].cr_frame is None)

  asyncio.run(main())
  threads = [t for t in threading.enumerate() if t.name == "stuck"]
  release.set()
  for thread in threads:
    thread.join(PATIENCE)
  assert made[0].cr_frame is None


def test_calls_that_hang_are_bounded(release, monkeypatch):
  before = off_loop.num_calls_alive()
  monkeypatch.setattr(off_loop, "MAX_CALLS_ALIVE", before + 2)

  async def main():
    hanging = [
      asyncio.create_task(call_off_loop(release.wait, PATIENCE, name="stuck"))
      for _ in range(2)
    ]
    await until(lambda: off_loop.num_calls_alive() == before + 2)
    with pytest.raises(TooManyCallsError, match="so one more was not started"):
      await call_off_loop(int, name="one more")
    # To stop waiting frees nothing, for the thread is still there.
    hanging.pop().cancel()
    await asyncio.sleep(0)
    with pytest.raises(TooManyCallsError):
      await call_off_loop(int)
    release.set()
    await asyncio.gather(*hanging)
    await until(lambda: off_loop.num_calls_alive() == before)
    return await call_off_loop(int)

  assert asyncio.run(main()) == 0


def test_a_thread_that_cannot_start_holds_no_place(monkeypatch):
  def start(thread):
    raise RuntimeError("can't start new thread")

  before = off_loop.num_calls_alive()
  with monkeypatch.context() as patch:
    patch.setattr(threading.Thread, "start", start)
    with pytest.raises(RuntimeError, match="can't start"):
      asyncio.run(call_off_loop(int))
  assert off_loop.num_calls_alive() == before


class Blocking:
  """Counts in a plain environment; hangs in a step called `hang`."""

  def __init__(self, release=None):
    self.release = release
    self.started = []
    self.ended = []
    self.overlapped = False

  def reset(self, task, *, seed):
    return (Message(role="user", content=f"{task.prompt} {seed}"),)

  def step(self, action):
    self.overlapped |= len(self.started) > len(self.ended)
    self.started.append(action)
    if action == "hang":
      assert self.release is not None
      self.release.wait(PATIENCE)
    self.ended.append(action)
    return StepResult(terminated=action == "done")

  def score(self):
    return {"success": float(len(self.ended))}


def test_a_blocking_environment_becomes_one_that_can_be_awaited():
  async def main():
    environment = OffLoopEnvironment(Blocking())
    prompt = await environment.reset(TASK, seed=3)
    first, last = [await environment.step(a) for a in ("a", "done")]
    return prompt, first, last, await environment.score()

  prompt, first, last, score = asyncio.run(main())
  assert prompt[0].content == "go 3"
  assert (first.terminated, last.terminated) == (False, True)
  assert score == {"success": 2.0}


def test_an_environment_of_coroutines_is_refused():
  class Mixed(Blocking):
    async def step(self, action):
      return StepResult()

  with pytest.raises(ValueError, match=r"Mixed.step is a coroutine function"):
    OffLoopEnvironment(Mixed())  # pyright: ignore[reportArgumentType]


def test_a_call_waits_for_the_late_one_before_it(release):
  blocking = Blocking(release)

  async def main():
    environment = OffLoopEnvironment(blocking)
    for action in ("hang", "too early", "too early"):
      with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.005):
          await environment.step(action)
    assert blocking.started == ["hang"]
    release.set()
    await environment.step("next")
    return await environment.score()

  assert asyncio.run(main()) == {"success": 2.0}
  # What was given up before its turn never ran.
  assert blocking.ended == ["hang", "next"]
  assert not blocking.overlapped


class Plain:
  def reset(self, task, *, seed):
    return ()

  def step(self, action):
    return StepResult()

  def score(self):
    return {}


def test_it_closes_what_can_be_closed_in_a_thread():
  class Closable(Plain):
    closed_in = None

    def close(self):
      self.closed_in = threading.current_thread()

  environment = Closable()
  asyncio.run(OffLoopEnvironment(environment).close())
  assert environment.closed_in is not None
  assert environment.closed_in is not threading.main_thread()
  asyncio.run(OffLoopEnvironment(Plain()).close())


def test_it_is_closed_after_a_call_that_nobody_waits_for(release):
  class Stuck(Plain):
    def __init__(self):
      self.order = []

    def step(self, action):
      release.wait(PATIENCE)
      self.order.append("step")
      return StepResult()

    def close(self):
      self.order.append("close")

  environment = Stuck()

  async def main():
    wrapped = OffLoopEnvironment(environment)
    for call in (lambda: wrapped.step("a"), wrapped.close):
      with pytest.raises(TimeoutError):
        await asyncio.wait_for(call(), timeout=0.01)
    release.set()
    await until(lambda: environment.order == ["step", "close"])

  asyncio.run(main())
