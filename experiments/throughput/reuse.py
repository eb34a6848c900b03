"""Counts what the engine computes for long episodes and for large groups.

  python experiments/throughput/reuse.py

A token of a row is computed when it is prefilled or fed to be sampled from;
that of a shared prompt is copied instead. The last token of a row needs
neither. The work of an episode thus grows with its tokens, not with its turns
times its tokens, and a prompt is computed once for all members of a group.
The padding of fixed shapes is not counted.
"""

import asyncio
from collections.abc import Sequence
import dataclasses
import functools
import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np
from ours import Numbers, Scale
import workload
from workload import Workload

from arl_jax.actors.policy import SamplingParams
from arl_jax.actors.pool import Actor, run_group
from arl_jax.actors.rollout import Limits
from arl_jax.bridge.engine import Engine
from arl_jax.bridge.engine_config import EngineConfig
from arl_jax.episode import Group, Row, Task
from arl_jax.models import transformer

SIZES = (1, 2, 4, 8, 16)
WORK = Workload(mode="agentic", vocab_size=512)
MODEL = transformer.ModelConfig(
  vocab_size=WORK.vocab_size,
  num_layers=1,
  model_dim=32,
  num_heads=2,
  num_kv_heads=1,
  head_dim=16,
  mlp_dim=64,
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Counts:
  """Tokens of one group.

  Attributes:
    num_turns: turns of each member.
    group_size: members.
    row_tokens: tokens of all rows.
    prefilled: tokens that prefill computed.
    shared: tokens that were copied from another row.
    sampled: tokens that the policy sampled.
    prefilled_anew: tokens that prefill would compute if each turn began with
      the whole conversation.
  """

  num_turns: int
  group_size: int
  row_tokens: int
  prefilled: int
  shared: int
  sampled: int
  prefilled_anew: int

  @property
  def computed(self) -> int:
    return self.prefilled + self.sampled


def row_length(num_turns: int) -> int:
  answers = (num_turns - 1) * WORK.observation_tokens
  return WORK.prompt_tokens + num_turns * WORK.turn_tokens + answers


def prefilled_anew(row: Row) -> int:
  """Sums the conversations before all turns; the last token is not prefill."""
  turns = range(int(row.turn_ids.max()) + 1)
  return sum(int(np.argmax(row.turn_ids == turn)) - 1 for turn in turns)


async def play(
  engine: Engine, ordinal: int, num_turns: int, group_size: int
) -> Counts:
  """Plays a group with a prompt of its own, and counts."""
  work = dataclasses.replace(WORK, num_turns=num_turns)
  actor = Actor(
    policy=engine,
    make_environment=functools.partial(Scale, work),
    chat=Numbers(),  # type: ignore[arg-type]
    limits=Limits(
      max_turns=num_turns,
      max_tokens_per_turn=work.turn_tokens,
      max_length=row_length(num_turns),
    ),
    sampling=SamplingParams(),
    reward_weights={"success": 1.0},
  )
  prompt = workload.make_prompt(work, step=0, index=ordinal)
  before = dataclasses.replace(engine.stats)
  group = await run_group(
    actor,
    Task(task_id=str(ordinal), prompt=workload.to_text(prompt)),
    ordinal=ordinal,
    group_size=group_size,
  )
  return count(group, before, engine.stats)


def count(group: Group, before, after) -> Counts:
  rows = [episode.rows[0] for episode in group.episodes]
  return Counts(
    num_turns=len(group.episodes[0].turns),
    group_size=len(rows),
    row_tokens=sum(len(row) for row in rows),
    prefilled=after.prefilled_tokens - before.prefilled_tokens,
    shared=after.shared_tokens - before.shared_tokens,
    sampled=after.sampled_tokens - before.sampled_tokens,
    prefilled_anew=sum(prefilled_anew(row) for row in rows),
  )


async def measure(sizes: Sequence[tuple[int, int]]) -> list[Counts]:
  """Plays groups one after the other, given as turns and members."""
  config = EngineConfig(
    num_slots=max(members for _, members in sizes),
    max_length=row_length(max(turns for turns, _ in sizes)),
    chunk_size=WORK.turn_tokens,
    prefill_rows=(1,),
    prefill_lengths=(16,),
  )
  params = transformer.init_params(jax.random.key(0), MODEL)
  async with Engine(MODEL, params, config) as engine:
    return [
      await play(engine, ordinal, *size) for ordinal, size in enumerate(sizes)
    ]


def faults(counts: Counts) -> list[str]:
  """Returns what contradicts the claims; nothing, if they hold."""
  found = []
  if counts.computed > counts.row_tokens:
    found.append("more tokens were computed than the rows have")
  filled = counts.computed + counts.shared
  if filled != counts.row_tokens - counts.group_size:
    found.append("a token was left out, or was filled more than once")
  answers = (counts.num_turns - 1) * WORK.observation_tokens
  if counts.prefilled != (WORK.prompt_tokens - 1 + counts.group_size * answers):
    found.append("the prompt was not computed exactly once")
  return [f"{fault}: {counts}" for fault in found]


def turns_table(measured: Sequence[Counts]) -> str:
  head = (
    "turns",
    "tokens of the row",
    "prefilled",
    "sampled",
    "computed / row",
    "prefilled anew each turn",
    "computed / row then",
  )
  lines = []
  for c in measured:
    share = f"{c.computed / c.row_tokens:.2f}"
    anew = f"{(c.prefilled_anew + c.sampled) / c.row_tokens:.2f}"
    numbers = (c.num_turns, c.row_tokens, c.prefilled, c.sampled)
    lines.append((*numbers, share, c.prefilled_anew, anew))
  return markdown(head, lines)


def groups_table(measured: Sequence[Counts]) -> str:
  head = (
    "members",
    "prompt tokens prefilled",
    "copied",
    "prefilled without copies",
  )
  lines = [
    (c.group_size, c.prefilled, c.shared, c.prefilled_anew) for c in measured
  ]
  return markdown(head, lines)


def markdown(head: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
  rows = [head, ("---",) * len(head), *lines]
  return "\n".join(f"| {' | '.join(map(str, row))} |" for row in rows)


def main() -> None:
  sizes = [(n, 1) for n in SIZES] + [(1, n) for n in SIZES]
  measured = asyncio.run(measure(sizes))
  long, wide = measured[: len(SIZES)], measured[len(SIZES) :]
  print(f"{turns_table(long)}\n\n{groups_table(wide)}")
  found = [fault for counts in measured for fault in faults(counts)]
  if found:
    sys.exit("\n".join(found))


if __name__ == "__main__":
  main()
