"""The workload on arl_jax: engine, actors, environment and GRPO update."""

import asyncio
import functools
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from policy import make_policy, small_model
import workload
from workload import Workload

from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.pool import Actor, run_group
from arl_jax.actors.rollout import Limits
from arl_jax.bridge import batching, pieces
from arl_jax.bridge.engine import Engine
from arl_jax.bridge.engine_config import EngineConfig
from arl_jax.envs.environment import StepResult
from arl_jax.episode import Message, Task
from arl_jax.learner.credit import AdvantageConfig, compute_advantages
from arl_jax.learner.objective import MicroBatch
from arl_jax.learner.optimizer import OptimizerConfig
from arl_jax.learner.surrogates import LossConfig
from arl_jax.learner.update import update


class Numbers:
  """A chat format without markup: text is ids in decimal."""

  stop_ids = ()

  def prompt_ids(self, messages):
    return np.asarray(workload.to_ids(messages[0].content), np.int32)

  def observation_ids(self, messages, *, finish_reason):
    del finish_reason
    return self.prompt_ids(messages)

  def decode(self, ids):
    return workload.to_text(ids)


class Scale:
  """Answers every turn but the last, and pays at the end."""

  def __init__(self, work: Workload):
    self._work = work
    self._scores: list[float] = []

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    del seed
    return (Message(role="user", content=task.prompt),)

  async def step(self, action: str) -> StepResult:
    self._scores.append(workload.score(self._work, action))
    turn = len(self._scores)
    if turn == (self._work.num_turns if self._work.is_agentic else 1):
      return StepResult(terminated=True)
    answer = workload.make_observation(self._work, turn)
    content = workload.to_text(answer)
    return StepResult(observations=(Message(role="tool", content=content),))

  async def score(self):
    return {"success": float(np.mean(self._scores))}


def main() -> None:
  work = workload.read_arguments(__doc__ or "")
  meter = workload.Meter(work, "arl_jax")
  asyncio.run(run(work, meter))
  meter.report(jax=jax.__version__)


async def run(work: Workload, meter: workload.Meter) -> None:
  length = work.prompt_tokens + work.response_tokens
  turn_tokens = work.response_tokens
  num_turns = 1
  if work.is_agentic:
    turn_tokens, num_turns = work.turn_tokens, work.num_turns
    length = work.prompt_tokens + num_turns * turn_tokens
    length += (num_turns - 1) * work.observation_tokens
  num_rows = work.num_prompts * work.group_size
  engine_config = EngineConfig(
    num_slots=num_rows,
    max_length=length,
    chunk_size=turn_tokens,
    # One shape for prompts and observations.
    prefill_rows=(8,),
    prefill_lengths=(16,),
  )
  loss = LossConfig(
    clip_high=0.2,
    kl_weight=work.kl_weight,
    kl_estimator="k3",
    aggregation="token_mean",
    logprob_chunk=8,
  )
  policy = make_policy(
    small_model(work),
    loss,
    optimizer_config=OptimizerConfig(
      learning_rate=work.learning_rate, b2=0.999
    ),
  )
  learner = policy.initial_state()
  params = policy.publish(learner.params)
  async with Engine(policy.model, params, engine_config) as engine:
    actor = Actor(
      policy=engine,
      make_environment=functools.partial(Scale, work),
      chat=Numbers(),  # type: ignore[arg-type]
      limits=Limits(
        max_turns=num_turns, max_tokens_per_turn=turn_tokens, max_length=length
      ),
      sampling=SamplingParams(),
      reward_weights={"success": 1.0},
    )
    meter.start()
    for step in range(work.num_steps):
      started = time.perf_counter()
      groups = await asyncio.gather(
        *[
          run_group(
            actor,
            Task(
              task_id=f"{step}/{i}",
              prompt=workload.to_text(workload.make_prompt(work, step, i)),
            ),
            ordinal=step * work.num_prompts + i,
            group_size=work.group_size,
          )
          for i in range(work.num_prompts)
        ]
      )
      rolled = time.perf_counter()
      batch = batching.collate_groups(
        groups, num_rows=num_rows, length=length, num_turns=num_turns
      )
      advantages = compute_advantages(batch, config=AdvantageConfig())
      micros = [
        MicroBatch(
          piece.batch,
          scored=pieces.scored_columns(piece.batch.action_mask),
          **piece.per_token,
        )
        for piece in pieces.micro_batches(
          batch,
          np.arange(num_rows),
          micro_batch_rows=16,
          lengths=(),
          per_token={"advantages": np.asarray(advantages)},
        )
      ]
      learner, metrics = update(
        learner, micros, fns=policy.fns, ref_params=policy.params
      )
      del metrics
      engine.set_params(policy.publish(learner.params), step + 1)
      now = time.perf_counter()
      meter.end_step(
        rollout=rolled - started,
        update=now - rolled,
        sampled=float(np.sum(batch.action_mask)),
      )


if __name__ == "__main__":
  main()
