"""Weights that change while the engine samples, token by token."""

import asyncio
import collections
import dataclasses

import numpy as np
import pytest

from arl_jax.actors.policy import SamplingParams
from arl_jax.models import transformer
from tests.bridge import tiny_engine
from tests.bridge.tiny_engine import CONFIG, before_steps, prompt
from tests.bridge.version_reference import (
  CellVersions,
  Sample,
  assert_exact,
  expected_logprobs,
)

MODES = ["refresh", "keep"]
NUM_SWITCHES = 100


@pytest.fixture(scope="module")
def weights():
  """Weights of the even versions and of the odd ones."""
  return tuple(
    transformer.unstack_layers(tiny_engine.draw_params(seed)) for seed in (0, 9)
  )


def with_engine(params, body, mode="refresh", **kwargs):
  config = dataclasses.replace(CONFIG, on_new_weights=mode)
  return tiny_engine.with_engine(params, body, config, **kwargs)


# Many switches.


class Play:
  """Scripted episodes that go on until the weights have changed enough."""

  def __init__(self, engine, weights, mode):
    self.engine, self.weights, self.mode = engine, weights, mode
    self.cells = CellVersions(engine)
    self.samples, self.keys, self.num_cancelled = [], [], 0
    self._steps = []
    before_steps(engine, self._on_step)

  def _on_step(self, number, placements):
    self.cells.on_step(placements)
    if number < NUM_SWITCHES:
      self.engine.set_params(self.weights[(number + 1) % 2], number + 1)
    for step in self._steps:
      if not step.done():
        step.set_result(None)
    self._steps.clear()

  def _next_step(self):
    self._steps.append(asyncio.get_running_loop().create_future())
    return self._steps[-1]

  async def worker(self, worker):
    rng = np.random.default_rng(worker)
    num_started = 0
    while self.engine.version < NUM_SWITCHES:
      await self._episode(f"{worker}/{num_started}", rng)
      num_started += 1

  async def _episode(self, session, rng):
    # Few prompts, so that many sessions begin alike.
    ids = prompt(rng.integers(3), 14)
    for turn in range(3):
      sampling = SamplingParams(
        max_tokens=int(rng.integers(1, 10)),
        seed=int(rng.integers(2**31)),
        stop_ids=(5,),
      )
      done = await self._turn(ids, sampling, session, rng)
      if done is None:
        break
      cells = self.cells.of[session].copy() if self.mode == "keep" else None
      self.samples.append(Sample(fed=ids, done=done, cells=cells))
      self.keys.append((session, turn))
      assert 1 <= len(done.token_ids) <= sampling.max_tokens
      if done.finish_reason == "length":
        assert len(done.token_ids) == sampling.max_tokens
      for _ in range(rng.integers(40)):  # a tool
        await asyncio.sleep(0)
      ids = np.concatenate([ids, done.token_ids, prompt(turn, turn)])
    self.engine.end_session(session)

  async def _turn(self, ids, sampling, session, rng):
    def generate():
      return asyncio.create_task(
        self.engine.generate(ids, sampling=sampling, session=session)
      )

    request = generate()
    if rng.random() < 0.25:
      for _ in range(rng.integers(3)):
        await asyncio.wait(
          {request, self._next_step()}, return_when="FIRST_COMPLETED"
        )
      request.cancel()
      await asyncio.wait({request})
      if request.cancelled():
        self.num_cancelled += 1
        if rng.random() < 0.5:
          return None
        request = generate()  # the same turn once more, in the same session
    return await request


@pytest.mark.parametrize("mode", MODES)
def test_a_hundred_switches_lose_and_double_nothing(weights, mode):
  """Cancellation and weight changes at any moment (verl#7611, rllm#622)."""

  async def body(engine):
    play = Play(engine, weights, mode)
    await asyncio.wait_for(
      asyncio.gather(*(play.worker(worker) for worker in range(10))), 60
    )
    # A chunk of requests that are gone may still run; this one comes after.
    sampling = SamplingParams(max_tokens=1)
    await engine.generate(prompt(0), sampling=sampling, session="last")
    engine.end_session("last")
    return play, engine

  play, engine = with_engine(weights[0], body, mode)
  assert engine.version == engine.stats.weight_changes == NUM_SWITCHES
  assert len(set(play.keys)) == len(play.keys) == len(play.samples) > 50
  assert play.num_cancelled
  assert play.cells.num_lost
  num_mixed = 0
  for sample in play.samples:
    done = sample.done
    assert len(done.token_ids) == len(done.logprobs)
    assert len(done.token_ids) == len(done.policy_versions)
    assert np.all(np.diff(done.policy_versions) >= 0)
    num_mixed += done.policy_versions[0] < done.policy_versions[-1]
  assert num_mixed
  # The token's weights are those of its stamp, or the values would differ.
  assert_exact(play.samples, weights)
  assert not engine._table._busy.any()
  assert engine._table._owner == [None] * CONFIG.num_slots


# One switch, seen from every kind of session.


async def three_sessions(engine, other):
  """Switches while "middle" samples, and "between" waits for its tool.

  Returns:
    The turns after the switch by session; that of "middle" is in two parts.
  """
  cells, shared = CellVersions(engine), prompt(1, 20)
  switched = asyncio.Event()

  def on_step(_, placements):
    cells.on_step(placements)
    if any(r.session == "middle" for r in engine._active.values()):
      engine.set_params(other, 1)
      switched.set()

  before_steps(engine, on_step)

  async def generate(session, ids, num, seed):
    done = await engine.generate(
      ids, sampling=SamplingParams(max_tokens=num, seed=seed), session=session
    )
    return Sample(fed=ids, done=done, cells=cells.of[session].copy())

  before = await generate("between", shared, 5, 1)
  middle = asyncio.create_task(generate("middle", shared, 14, 2))
  await switched.wait()
  again = np.concatenate([shared, before.done.token_ids, prompt(2, 3)])
  samples = await asyncio.gather(
    middle,
    generate("between", again, 6, 3),
    generate("new", shared, 6, 4),
    generate("newer", shared, 6, 5),
  )
  return dict(zip(("middle", "between", "new", "newer"), samples, strict=True))


def fresh_turn(params, sample, seed):
  """The tokens after the switch, by an engine that knew no other weights."""
  new = sample.done.policy_versions == 1
  ids = np.concatenate([sample.fed, sample.done.token_ids[~new]])
  sampling = SamplingParams(max_tokens=int(new.sum()), seed=seed)

  async def body(engine):
    return await engine.generate(ids, sampling=sampling, session="fresh")

  # The draws depend on the seed and the position alone.
  return with_engine(params, body), new


@pytest.mark.parametrize("mode", MODES)
def test_after_a_switch_sessions_equal_a_fresh_engine_or_keep_keys(
  weights, mode
):
  """No prefix outlives its weights (NeMo#4018, SkyRL#1824)."""
  samples = with_engine(
    weights[0], lambda engine: three_sessions(engine, weights[1]), mode
  )
  versions = samples["middle"].done.policy_versions.tolist()
  assert versions == [0] * 4 + [1] * 10
  for name in ("between", "new", "newer"):
    assert set(samples[name].done.policy_versions.tolist()) == {1}
  for seed, (name, sample) in enumerate(samples.items(), 2):
    fresh, new = fresh_turn(weights[1], sample, seed)
    if mode == "refresh" or name.startswith("new"):
      np.testing.assert_array_equal(sample.done.token_ids[new], fresh.token_ids)
      np.testing.assert_allclose(
        sample.done.logprobs[new], fresh.logprobs, atol=1e-4
      )
    else:
      # Keys that were kept show; the reference below knows them.
      exact = dataclasses.replace(sample, cells=None)
      (logprobs,) = expected_logprobs([exact], weights)
      assert np.abs(sample.done.logprobs - logprobs)[new].max() > 1e-3
  if mode == "keep":
    assert_exact(samples.values(), weights)


@pytest.mark.parametrize("how", ["taken", "ended", "forgotten"])
def test_old_keys_end_with_the_slot_the_session_or_a_forget(weights, how):
  async def body(engine):
    async def generate(session, ids, seed=0):
      return await engine.generate(
        ids, sampling=SamplingParams(max_tokens=4, seed=seed), session=session
      )

    ids = prompt(1, 20)
    done = await generate("a", ids)
    if how == "taken":  # by others with the same prompt, all of version 0
      await asyncio.gather(*(generate(name, ids) for name in "bcde"))
    if how == "ended":  # a new session of the same name is another one
      engine.end_session("a")
    engine.set_params(weights[1], 1)
    if how == "forgotten":
      await generate("b", ids)  # a keeps its keys
      engine.forget()
    again = np.concatenate([ids, done.token_ids, prompt(2, 3)])
    return Sample(fed=again, done=await generate("a", again))

  sample = with_engine(weights[0], body, "keep")
  assert sample.done.policy_versions.tolist() == [1] * 4
  assert_exact([sample], weights)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("length", "num"), [(12, 14), (37, 11)])
def test_an_interrupted_turn_keeps_its_tokens_and_its_budget(
  weights, mode, length, num
):
  """The budget is that of the whole turn (slime#2260, slime#1440)."""
  ids = prompt(4, length)
  sampling = SamplingParams(max_tokens=14, seed=5)

  async def turn(engine):
    return await engine.generate(ids, sampling=sampling, session="a")

  async def switching(engine):
    before_steps(
      engine,
      lambda number, _: engine.set_params(
        weights[(number + 1) % 2], number + 1
      ),
    )
    return await turn(engine)

  whole = with_engine(weights[0], turn, mode)
  parted = with_engine(weights[0], switching, mode)
  assert len(whole.token_ids) == len(parted.token_ids) == num
  assert parted.policy_versions.tolist() == [i // 4 for i in range(num)]
  assert len(parted.logprobs) == num
  np.testing.assert_array_equal(parted.token_ids[:4], whole.token_ids[:4])
  np.testing.assert_allclose(parted.logprobs[:4], whole.logprobs[:4], atol=1e-5)
  assert parted.token_ids.tolist() != whole.token_ids.tolist()


def test_the_chunks_of_a_turn_are_its_ids(weights):
  """Nothing is lost between the device and the caller (agent-lightning#326)."""

  async def body(engine):
    chunks, step = collections.defaultdict(list), engine._device.step

    def recording(*args):
      tokens, logprobs, counts = step(*args)
      for slot, request in engine._active.items():
        chunks[request.session].extend(tokens[: counts[slot], slot].tolist())
      return tokens, logprobs, counts

    engine._device.step = recording

    async def generate(member):
      ids = prompt(member, 5 + member)
      done = await engine.generate(
        ids,
        sampling=SamplingParams(max_tokens=9 + member, seed=member),
        session=str(member),
      )
      return Sample(fed=ids, done=done)

    return chunks, await asyncio.gather(*map(generate, range(6)))

  chunks, samples = with_engine(weights[0], body)
  for member, sample in enumerate(samples):
    assert chunks[str(member)] == sample.done.token_ids.tolist()
    assert len(sample.done.token_ids) == 9 + member
  assert_exact(samples, weights)


# Which weights count.


def test_of_two_switches_before_a_chunk_the_newest_counts(weights):
  async def body(engine):
    engine.set_params(weights[1], 1)
    engine.set_params(weights[0], 4)
    ids = prompt(0)
    done = await engine.generate(
      ids, sampling=SamplingParams(max_tokens=3), session="a"
    )
    return Sample(fed=ids, done=done), engine

  sample, engine = with_engine(weights[1], body)
  assert sample.done.policy_versions.tolist() == [4] * 3
  assert engine.version == 4
  assert engine.stats.weight_changes == 1
  assert_exact([sample], weights)


def test_versions_never_go_back(weights):
  async def body(engine):
    with pytest.raises(ValueError, match="version is 6, .* already has 7"):
      engine.set_params(weights[1], 6)
    engine.set_params(weights[1], 9)
    # What waits for the next chunk counts as given.
    with pytest.raises(ValueError, match="version is 8, .* already has 9"):
      engine.set_params(weights[0], 8)
    engine.set_params(weights[1], 9)
    ids = prompt(0)
    done = await engine.generate(
      ids, sampling=SamplingParams(max_tokens=2), session="a"
    )
    return Sample(fed=ids, done=done)

  sample = with_engine(weights[0], body, version=7)
  assert sample.done.policy_versions.tolist() == [9, 9]
  assert_exact([sample], weights)
