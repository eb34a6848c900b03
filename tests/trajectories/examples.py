"""Random episodes, and what it means for two to be the same."""

import dataclasses
import pathlib
import subprocess
import sys

import numpy as np

from arl_jax.episode import (
  Episode,
  EpisodeStatus,
  Group,
  Message,
  Row,
  Task,
  Turn,
)

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Quotes, line ends of all kinds, other planes, halves of a pair, and a NUL.
_TEXTS = (
  "",
  'He said "no"\\n\n\r\n\t',
  "sep\u2028\u2029\x85\x0b\x1c",
  "\N{PILE OF POO} \u03bb \u6f22\u5b57",
  "half \ud83d",
  "other half \udca9",
  "\x00\x7f",
)


def random_row(
  rng: np.random.Generator, num_tokens: int, *, poison: bool = False
) -> Row:
  acted = rng.random(num_tokens) < 0.4
  logprobs = rng.normal(size=num_tokens).astype(np.float32)
  if poison:
    logprobs[::3], logprobs[1::3] = np.nan, -np.inf
    # A NaN of other bits must come back with these bits.
    logprobs[:1].view(np.uint32)[:] = 0x7FC01234
  return Row(
    tokens=rng.integers(0, 2**31, num_tokens).astype(np.int32),
    action_mask=acted,
    turn_ids=np.where(acted, rng.integers(0, 9), -1).astype(np.int32),
    behavior_logprobs=logprobs,
    policy_versions=np.where(acted, rng.integers(0, 99), -1).astype(np.int32),
    agent_id=int(rng.integers(0, 3)),
  )


def random_task(rng: np.random.Generator) -> Task:
  return Task(
    task_id=f"task-{rng.integers(10**9)}",
    prompt=str(rng.choice(_TEXTS)),
    seed=int(rng.integers(0, 2**62)),
    level=int(rng.integers(0, 5)),
    hidden={
      "gold": (1, ("a", None), [True, 2.5]),
      "$price": {"text": str(rng.choice(_TEXTS)), "big": 10**30},
      "list": [[], {}, ()],
    },
  )


def random_episode(
  rng: np.random.Generator, *, member: int = 0, task: Task | None = None
) -> Episode:
  def text() -> str:
    return str(rng.choice(_TEXTS))

  def messages() -> tuple[Message, ...]:
    return tuple(
      Message(role="tool", content=text()) for _ in range(rng.integers(0, 3))
    )

  turns = tuple(
    Turn(
      action=text(),
      finish_reason=str(rng.choice(["stop", "length"])),
      observations=messages(),
      reward=float(rng.normal()),
      num_tool_calls=int(rng.integers(0, 4)),
      num_tool_errors=int(rng.integers(0, 4)),
      state_key=None if rng.random() < 0.5 else text(),
      generate_seconds=float(rng.random()),
      step_seconds=float(rng.random()),
    )
    for _ in range(rng.integers(0, 4))
  )
  lengths = [int(rng.integers(0, 40)) for _ in range(rng.integers(0, 4))]
  return Episode(
    task=task or random_task(rng),
    member=member,
    status=list(EpisodeStatus)[rng.integers(len(EpisodeStatus))],
    rows=tuple(random_row(rng, n, poison=n % 2 == 0) for n in lengths),
    turns=turns,
    prompt=messages(),
    reward_components={"success": 1.0, text(): float(rng.normal())},
    error=text(),
    seconds=float(rng.random()),
  )


def random_groups(
  seed: int, *, num_groups: int = 3, group_size: int = 4
) -> tuple[Group, ...]:
  rng = np.random.default_rng(seed)
  groups = []
  for ordinal in range(num_groups):
    task = random_task(rng)
    members = [
      random_episode(rng, member=member, task=task)
      for member in range(group_size)
    ]
    groups.append(
      Group(ordinal=1000 * seed + ordinal, task=task, episodes=tuple(members))
    )
  return tuple(groups)


def long_groups(
  *, num_episodes: int, num_tokens: int, group_size: int = 1
) -> tuple[Group, ...]:
  """Groups of rollouts that are long in tokens and short in all else."""
  rng = np.random.default_rng(0)
  groups = []
  for ordinal in range(num_episodes // group_size):
    task = Task(task_id=f"t{ordinal}", prompt="go")
    members = [
      Episode(
        task=task,
        member=member,
        status=EpisodeStatus.MAX_TOKENS,
        rows=(random_row(rng, num_tokens),),
        turns=(),
      )
      for member in range(group_size)
    ]
    groups.append(Group(ordinal=ordinal, task=task, episodes=tuple(members)))
  return tuple(groups)


def row_arrays(row: Row) -> dict[str, np.ndarray]:
  return {
    field.name: getattr(row, field.name)
    for field in dataclasses.fields(row)
    if field.name != "agent_id"
  }


def assert_same_row(found: Row, expected: Row) -> None:
  assert found.agent_id == expected.agent_id
  wanted = row_arrays(expected)
  for name, array in row_arrays(found).items():
    assert array.dtype == wanted[name].dtype
    assert array.dtype.isnative
    assert array.shape == wanted[name].shape
    assert array.tobytes() == wanted[name].tobytes()  # NaN is equal to itself
    assert array.flags.owndata
    assert array.flags.writeable
    assert array.flags.c_contiguous


def assert_same_episode(found: Episode, expected: Episode) -> None:
  assert dataclasses.replace(found, rows=()) == dataclasses.replace(
    expected, rows=()
  )
  assert type(found.status) is EpisodeStatus
  assert list(found.reward_components) == list(expected.reward_components)
  assert len(found.rows) == len(expected.rows)
  for row, wanted in zip(found.rows, expected.rows, strict=True):
    assert_same_row(row, wanted)


def assert_same_groups(found, expected) -> None:
  assert [g.ordinal for g in found] == [g.ordinal for g in expected]
  for group, wanted in zip(found, expected, strict=True):
    assert group.task == wanted.task
    assert len(group.episodes) == len(wanted.episodes)
    for episode, member in zip(group.episodes, wanted.episodes, strict=True):
      assert_same_episode(episode, member)
      assert episode.task is group.task  # one copy for all members


def run_script(script: str, *arguments: object, prefix: tuple[str, ...] = ()):
  """Runs Python in a process of its own; its output is in `stdout`."""
  return subprocess.run(
    [*prefix, sys.executable, "-c", script, *map(str, arguments)],
    cwd=ROOT,
    capture_output=True,
    text=True,
    timeout=120,
    check=False,
  )
