"""Door 2: many concurrent generate() calls become one batched decode."""

import asyncio
from concurrent import futures
import dataclasses
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from arl_jax.actors.policy import Completion, SamplingParams
from arl_jax.bridge.device_slots import DeviceSlots, bucket, idle_rows
from arl_jax.bridge.engine_config import MAX_STOP_IDS, EngineConfig, EngineStats
from arl_jax.bridge.slots import Placement, SlotTable
from arl_jax.models import decode
from arl_jax.models.transformer import ModelConfig

_QUIET_TICKS = 16


@dataclasses.dataclass(kw_only=True, eq=False)
class _Request:
  ids: npt.NDArray[np.int32]
  sampling: SamplingParams
  session: str
  future: asyncio.Future[Completion]
  slot: int = -1
  tokens: list[npt.NDArray[np.int32]] = dataclasses.field(default_factory=list)
  logprobs: list[npt.NDArray[np.float32]] = dataclasses.field(
    default_factory=list
  )
  versions: list[int] = dataclasses.field(default_factory=list)

  @property
  def remaining(self) -> int:
    return self.sampling.max_tokens - len(self.versions)

  def all_ids(self) -> npt.NDArray[np.int32]:
    return np.concatenate([self.ids, *self.tokens])


class Engine:
  """A policy that decodes in fixed slots and keeps keys while tools run.

  Use as `async with Engine(...) as engine`. Device work runs on one thread,
  so the event loop never waits for it. Weights change between two chunks:
  what a turn has sampled so far stays, and the rest of it is sampled by the
  new ones, from the keys that `EngineConfig.on_new_weights` says.
  """

  def __init__(
    self,
    model: ModelConfig,
    params: Any,
    config: EngineConfig,
    *,
    version: int = 0,
    executor: futures.Executor | None = None,
    cache_sharding: Any = None,
  ):
    """Allocates the cache.

    Args:
      model: shape of the transformer.
      params: weights, in the dtype of the activations; never donated.
      config: fixed shapes.
      version: version of the weights.
      executor: the thread for device work; one of its own by default.
      cache_sharding: NamedSharding of every cache array.
    """
    self.stats = EngineStats()
    self.version = version
    self._model = model
    self._config = config
    self._executor = executor or futures.ThreadPoolExecutor(1, "engine")
    self._owns_executor = executor is None
    self._table = SlotTable(
      num_slots=config.num_slots, max_length=config.max_length
    )
    self._device = DeviceSlots(
      model,
      params,
      config,
      stats=self.stats,
      cache_sharding=cache_sharding,
    )
    self._waiting: list[_Request] = []
    self._active: dict[int, _Request] = {}
    self._new_weights: tuple[Any, int] | None = None
    self._stale = False
    self._wake = asyncio.Event()
    self._loop_task: asyncio.Task[None] | None = None
    self._end: BaseException | None = None  # why it takes no more requests

  # Policy.

  async def generate(
    self,
    token_ids: npt.NDArray[np.int32],
    *,
    sampling: SamplingParams,
    session: str,
  ) -> Completion:
    """Samples a turn after `token_ids`; see `arl_jax.actors.policy.Policy`.

    Raises:
      ValueError: if an argument is out of range; the message names it.
      RuntimeError: if the engine does not run, was stopped or failed, before
        or while the request waits; its `__cause__`, named in the message, is
        the engine's own error.
    """
    ids = np.asarray(token_ids, np.int32)
    self._check(ids, sampling)
    if self._end is not None:
      raise _ended(self._end)
    if self._loop_task is None:
      raise RuntimeError("the engine is not running; use `async with engine`")
    if any(
      # A cancelled request may still be on the device; it hinders nobody.
      request.session == session and not request.future.done()
      for request in [*self._waiting, *self._active.values()]
    ):
      raise ValueError(f"session {session!r} is already generating")
    room = self._config.max_length - len(ids)
    request = _Request(
      ids=ids,
      sampling=dataclasses.replace(
        sampling, max_tokens=min(sampling.max_tokens, room)
      ),
      session=session,
      future=asyncio.get_running_loop().create_future(),
    )
    self._waiting.append(request)
    self._wake.set()
    return await request.future

  def end_session(self, session: str) -> None:
    """Gives the session's slot back; the session is over."""
    self._table.end_session(session)

  # Weights.

  def set_params(self, params: Any, version: int) -> None:
    """Switches to new weights before the next chunk.

    Of several calls before a chunk, the last one counts. A chunk that is on
    the device is stamped with the version that it started with.

    Args:
      params: weights that nobody donates or deletes.
      version: stamped on every token sampled from the next chunk on.

    Raises:
      ValueError: if the version is lower than that of the weights set last.
    """
    newest = self._new_weights[1] if self._new_weights else self.version
    if version < newest:
      raise ValueError(
        f"version is {version}, but the engine already has {newest};"
        " versions never go back, so give new weights a higher one"
      )
    self._new_weights = (params, version)

  def forget(self) -> None:
    """Drops everything cached before the next chunk.

    What follows does not depend on what was sampled before.
    """
    self._stale = True

  def status(self) -> str:
    """Says in one line what is done so far; it changes while work goes on."""
    return (
      f"version {self.version}, {len(self._active)} decoding,"
      f" {len(self._waiting)} waiting,"
      f" {self.stats.sampled_tokens} tokens sampled,"
      f" {self.stats.prefilled_tokens} prefilled"
    )

  # Lifetime.

  async def warm_up(self) -> None:
    """Compiles every shape that a turn can meet, so that none waits for it.

    Call it before the first `generate`.
    """
    loop = asyncio.get_running_loop()
    await loop.run_in_executor(self._executor, self._device.warm_up)

  async def __aenter__(self) -> Self:
    self._loop_task = asyncio.create_task(self._run(), name="engine")
    return self

  async def __aexit__(self, *exc: object) -> None:
    assert self._loop_task is not None
    self._close(asyncio.CancelledError("`async with` was left"))
    self._loop_task.cancel()
    await asyncio.wait([self._loop_task])
    self._loop_task = None
    if self._owns_executor:
      # A chunk may still be running, and the loop must not wait for it.
      await asyncio.to_thread(self._executor.shutdown)

  async def _run(self) -> None:
    try:
      while True:
        await self._wake.wait()
        self._wake.clear()
        while self._waiting or self._active:
          await self._round()
    except BaseException as error:
      self._close(error)
      raise

  def _close(self, cause: BaseException) -> None:
    """Lets no request wait any more; the first cause stays."""
    self._end = self._end or cause
    for request in [*self._waiting, *self._active.values()]:
      if not request.future.done():
        request.future.set_exception(_ended(self._end))
    self._waiting.clear()
    self._active.clear()

  async def _round(self) -> None:
    await self._settle()
    self._drop_cancelled()
    self._switch_weights()
    placements = self._admit()
    if not self._active:  # whoever waited was cancelled
      return
    loop = asyncio.get_running_loop()
    inputs, kv_length = self._row_inputs()
    tokens, logprobs, counts = await loop.run_in_executor(
      self._executor, self._device.step, placements, inputs, kv_length
    )
    self._table.commit(placements)
    self._deliver(tokens, logprobs, counts)

  async def _settle(self) -> None:
    # Episodes get the loop until none of them adds a request, so that their
    # turns share a batch; and so that the batch does not depend on how fast
    # the device is: whoever need not wait for it arrives before it starts.
    # An episode that ends takes a few ticks to make room for the next one.
    quiet = 0
    while quiet < _QUIET_TICKS:
      waiting = len(self._waiting)
      await asyncio.sleep(0)
      quiet = quiet + 1 if len(self._waiting) == waiting else 0

  # Host bookkeeping.

  def _drop_cancelled(self) -> None:
    self._waiting = [r for r in self._waiting if not r.future.done()]
    for slot, request in list(self._active.items()):
      if request.future.done():
        del self._active[slot]
        self._table.park(slot)

  def _switch_weights(self) -> None:
    if self._new_weights is not None:
      params, self.version = self._new_weights
      self._device.set_params(params)
      self._new_weights = None
      self.stats.weight_changes += 1
      if self._config.on_new_weights == "keep":
        self._table.keep_old()
      else:
        self._stale = True
    if self._stale:
      self._table.forget()
      self._stale = False

  def _admit(self) -> list[Placement]:
    placements = []
    for slot, request in self._active.items():
      ids = request.all_ids()
      if self._table.filled[slot] < len(ids) - 1:  # dropped by a switch
        placements.append(self._table.refill(slot, ids))
    still_waiting = []
    for request in self._waiting:
      placement = self._table.place(request.session, request.ids)
      if placement is None:
        still_waiting.append(request)
        continue
      request.slot = placement.slot
      self._active[placement.slot] = request
      placements.append(placement)
    self._waiting = still_waiting
    return placements

  def _row_inputs(self) -> tuple[decode.RowInputs, int]:
    num_slots = self._config.num_slots
    num_rows = bucket(len(self._active), self._config.decode_rows, num_slots)
    rows: Any = idle_rows(num_rows, num_slots)
    for row, (slot, request) in self._active_rows(num_rows):
      rows.slot_ids[row] = slot
      length = len(request.ids) + len(request.versions) - 1
      rows.tokens[row] = self._table.ids[slot, length]
      rows.lengths[row] = length
      rows.budgets[row] = request.remaining
      rows.top_k[row] = request.sampling.top_k
      rows.seeds[row] = request.sampling.seed & 0xFFFFFFFF
      rows.temperature[row] = request.sampling.temperature
      rows.top_p[row] = request.sampling.top_p
      stops = request.sampling.stop_ids
      rows.stop_ids[row, : len(stops)] = stops
    longest = int(rows.lengths.max()) + self._config.chunk_size
    kv_length = bucket(
      min(longest, self._config.max_length),
      self._config.kv_lengths,
      self._config.max_length,
    )
    return rows, kv_length

  def _active_rows(
    self, num_rows: int
  ) -> list[tuple[int, tuple[int, _Request]]]:
    """Says which row of a chunk each active slot is."""
    items = list(self._active.items())
    if num_rows == self._config.num_slots:
      return [(item[0], item) for item in items]  # in place, see decode_chunk
    return list(enumerate(items))

  def _deliver(
    self,
    tokens: npt.NDArray[np.int32],
    logprobs: npt.NDArray[np.float32],
    counts: npt.NDArray[np.int32],
  ) -> None:
    for row, (slot, request) in self._active_rows(len(counts)):
      count = int(counts[row])
      sampled = tokens[:count, row]
      request.tokens.append(sampled)
      request.logprobs.append(logprobs[:count, row])
      request.versions.extend([self.version] * count)
      self._table.append(slot, sampled)
      self.stats.sampled_tokens += count
      stopped = bool(sampled[-1] in request.sampling.stop_ids)
      if not stopped and request.remaining > 0:
        continue
      del self._active[slot]
      self._table.park(slot)
      if not request.future.done():
        request.future.set_result(
          Completion(
            token_ids=np.concatenate(request.tokens),
            logprobs=np.concatenate(request.logprobs),
            policy_versions=np.asarray(request.versions, np.int32),
            finish_reason="stop" if stopped else "length",
          )
        )

  def _check(
    self, ids: npt.NDArray[np.int32], sampling: SamplingParams
  ) -> None:
    if ids.ndim != 1 or not len(ids):
      raise ValueError(
        f"token_ids has shape {ids.shape}; expected [n] with n at least 1"
      )
    if len(ids) + 1 > self._config.max_length:
      raise ValueError(
        f"token_ids has {len(ids)} tokens, which leaves no room in a slot of"
        f" {self._config.max_length}; raise max_length or end the episode"
      )
    if ids.min() < 0 or ids.max() >= self._model.vocab_size:
      raise ValueError(
        f"token_ids holds {ids.min()} to {ids.max()}; expected ids in"
        f" [0, {self._model.vocab_size})"
      )
    if len(sampling.stop_ids) > MAX_STOP_IDS:
      raise ValueError(
        f"stop_ids has {len(sampling.stop_ids)} ids; at most {MAX_STOP_IDS}"
      )
    for name, value, fine in (
      ("temperature", sampling.temperature, sampling.temperature >= 0),
      ("top_k", sampling.top_k, sampling.top_k >= 0),
      ("top_p", sampling.top_p, 0 < sampling.top_p <= 1),
      ("max_tokens", sampling.max_tokens, sampling.max_tokens >= 1),
    ):
      if not fine:
        raise ValueError(f"{name} is {value}, which is out of range")


def _ended(cause: BaseException) -> RuntimeError:
  """Returns what a request is told, an error of its own for each."""
  how = "was stopped" if isinstance(cause, asyncio.CancelledError) else "failed"
  error = RuntimeError(f"the engine {how}: {type(cause).__name__}: {cause}")
  error.__cause__ = cause
  return error
