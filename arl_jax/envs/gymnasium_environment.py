"""Worlds of Gymnasium, shown as text and acted on by text."""

from collections import deque
from collections.abc import Callable, Mapping
import copy
import importlib
import re
from typing import Any

from arl_jax.envs.environment import StepResult
from arl_jax.envs.off_loop import OffLoopEnvironment
from arl_jax.episode import Message, Task

INSTALL = "pip install gymnasium"
# Gets the world and an observation, returns what the policy reads.
RenderFn = Callable[[Any, Any], str]
# Gets the world and what the policy wrote, returns the action; its ValueError
# is an answer to the policy.
ParseFn = Callable[[Any, str], Any]

# What the numbers of an action space stand for, by the id without version.
_ACTION_NAMES = {
  "CliffWalking": ("up", "right", "down", "left"),
  "FrozenLake": ("left", "down", "right", "up"),
  "Taxi": ("south", "north", "east", "west", "pickup", "dropoff"),
}
_TAXI_PLACES = "RGYB"
_MAX_ACTIONS_SHOWN = 20


def make_task(
  world: str,
  *,
  prompt: str,
  success_reward: float = 1.0,
  seed: int = 0,
  options: Mapping[str, Any] | None = None,
) -> Task:
  """Makes the task of acting in a world.

  Args:
    world: an id that is registered with Gymnasium, such as `FrozenLake-v1`.
    prompt: what is to be done.
    success_reward: the least reward with which the world ends if the task is
      solved. That is the last reward, not the sum: those on the way may be
      negative.
    seed: of the world, which all episodes of the task share.
    options: of `gymnasium.make`.
  """
  hidden = {
    "world": world,
    "options": dict(options or {}),
    "success_reward": success_reward,
  }
  parts = [world, *(f"{k}={v}" for k, v in hidden["options"].items())]
  task_id = " ".join([*parts, f"seed={seed}"])
  return Task(task_id=task_id, prompt=prompt, seed=seed, hidden=hidden)


class GymnasiumEnv(OffLoopEnvironment):
  """One episode in a world; `make_task` makes the tasks.

  An action that cannot be read is answered with what is expected, and the
  world stays as it is.

  The reward component of each turn is `reward`, so that their sum is the
  return. At the end there are `success` and `truncated`. The limit of steps
  that a world is registered with is off, as the limit of turns is the actor's:
  an episode that it ends is truncated. If a world truncates itself all the
  same, the episode ends without success and `truncated` is 1.

  Args:
    render_observation: what the policy reads; `render_text` if not given.
    parse_action: what the world gets; `read_action` if not given.
    make_world: makes the world of a task, if it is not in the registry.
  """

  def __init__(
    self,
    *,
    render_observation: RenderFn | None = None,
    parse_action: ParseFn | None = None,
    make_world: Callable[[Task], Any] | None = None,
  ):
    super().__init__(
      _World(
        render_text if render_observation is None else render_observation,
        read_action if parse_action is None else parse_action,
        _make if make_world is None else make_world,
        describe_actions=parse_action is None,
      )
    )


class _World:
  def __init__(
    self,
    render_observation: RenderFn,
    parse_action: ParseFn,
    make_world: Callable[[Task], Any],
    *,
    describe_actions: bool,
  ):
    self._render = render_observation
    self._parse = parse_action
    self._make = make_world
    self._describe_actions = describe_actions
    self._world: Any = None
    self._ended = False
    self._success = self._truncated = False

  def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    del seed  # the world is that of the task
    self.close()
    self._world = self._make(task)
    self._success_reward = task.hidden["success_reward"]
    self._ended = self._success = self._truncated = False
    observation, _ = self._world.reset(seed=task.seed)
    lines = [task.prompt]
    if self._describe_actions:
      lines.append(describe_actions(self._world))
    lines.append(self._render(self._world, observation))
    text = "\n".join(line for line in lines if line)
    return (Message(role="user", content=text),)

  def step(self, action: str) -> StepResult:
    if self._world is None or self._ended:
      raise RuntimeError("the episode is over, or not begun; call reset()")
    try:
      parsed = self._parse(self._world, action)
    except ValueError as error:
      message = Message(role="user", content=f"error: {error}")
      rewards = {"turns": 1.0, "reward": 0.0}
      return StepResult(
        observations=(message,),
        rewards=rewards,
        num_tool_calls=1,
        num_tool_errors=1,
      )
    observation, reward, terminated, truncated, _ = self._world.step(parsed)
    reward = float(reward)
    self._success = bool(terminated) and reward >= self._success_reward
    self._truncated = bool(truncated) and not terminated
    self._ended = bool(terminated or truncated)
    text = self._render(self._world, observation)
    return StepResult(
      observations=() if self._ended else (Message(role="user", content=text),),
      terminated=self._ended,
      rewards={"turns": 1.0, "reward": reward},
      num_tool_calls=1,
      state_key=text,
    )

  def score(self) -> Mapping[str, float]:
    if self._world is None:
      raise RuntimeError("score() needs reset() first")
    return {
      "success": float(self._success),
      "truncated": float(self._truncated),
    }

  def close(self) -> None:
    if self._world is not None:
      self._world.close()


def render_text(world: Any, observation: Any) -> str:
  """Shows a map of FrozenLake or Taxi, a text as it is, else the numbers."""
  inner = world.unwrapped
  name = _name(world)
  if name == "FrozenLake":
    return _frozen_lake_map(inner, int(observation))
  if name == "Taxi":
    return _taxi_map(inner, int(observation))
  if isinstance(observation, str):
    return observation
  if hasattr(observation, "tolist"):
    return str(observation.tolist())
  return str(observation)


def read_action(world: Any, text: str) -> Any:
  """Reads the name or number of an action, or the text for a text space.

  Raises:
    ValueError: says what was expected instead. A text that names several
      actions is none.
  """
  space = world.action_space
  text = text.strip()
  if _kind(space) == "Text":
    if not space.contains(text):
      raise ValueError(f"expected a text of {space}")
    return text
  if _kind(space) != "Discrete":
    raise ValueError(f"parse_action is needed for actions of {space}")
  choices = _choices(world)
  words = re.findall(r"-?\w+", text.lower())
  found = {choices[word] for word in words if word in choices}
  if len(found) != 1:
    raise ValueError(f"expected one of {_shown(list(choices))}")
  return found.pop()


def describe_actions(world: Any) -> str:
  """Says which actions there are; nothing if the space has no default."""
  if _kind(world.action_space) != "Discrete":
    return ""
  return f"Each turn, write one of {_shown(list(_choices(world)))}."


def example_tasks() -> tuple[Task, ...]:
  """Returns tasks of FrozenLake, Taxi and CliffWalking without slipping."""
  walk = "Get from S to G without falling into a hole H. You are at P."
  drive = "Drive the taxi T to the passenger, then to the destination."
  cliff = (
    "States are numbered by row, 12 in each. Get to 47; 37 to 46 are cliff."
  )
  lakes = (
    ("SFFF", "FHFH", "FFFH", "HFFG"),
    ("SFHF", "FFFF", "HHFH", "FFFG"),
    ("SFFH", "HHFF", "FFFF", "FHHG"),
  )
  return (
    *(
      make_task(
        "FrozenLake-v1",
        prompt=walk,
        seed=seed,
        options={"desc": list(rows), "is_slippery": False},
      )
      for seed, rows in enumerate(lakes)
    ),
    *(
      make_task("Taxi-v4", prompt=drive, seed=seed, success_reward=20.0)
      for seed in range(3)
    ),
    make_task("CliffWalking-v1", prompt=cliff, success_reward=-1.0),
  )


def gold_actions(task: Task) -> tuple[str, ...]:
  """Returns a shortest way to success in a world that tells its transitions.

  Raises:
    ValueError: the world has no table of transitions, chance plays a part in
      it, or there is no way.
  """
  world = _make(task)
  try:
    start, _ = world.reset(seed=task.seed)
    return _shortest_way(world, start, task.hidden["success_reward"])
  finally:
    world.close()


def _shortest_way(
  world: Any, start: Any, success_reward: float
) -> tuple[str, ...]:
  table = getattr(world.unwrapped, "P", None)
  if table is None:
    raise ValueError(f"{world} has no table P of transitions")
  names = {number: name for name, number in _choices(world).items()}
  waiting: deque[tuple[int, tuple[str, ...]]] = deque([(int(start), ())])
  known = {int(start)}
  while waiting:
    state, way = waiting.popleft()
    for number, outcomes in table[state].items():
      if len(outcomes) > 1:
        raise ValueError(f"chance plays a part in {world}; no way is sure")
      _, following, reward, is_end = outcomes[0]
      longer = (*way, names[number])
      if is_end and reward >= success_reward:
        return longer
      if not is_end and int(following) not in known:
        known.add(int(following))
        waiting.append((int(following), longer))
  raise ValueError(f"no way leads to success in {world}")


def _make(task: Task) -> Any:
  try:
    gymnasium = importlib.import_module("gymnasium")
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      f"worlds of Gymnasium need the package {error.name}; {INSTALL}"
    ) from error
  return gymnasium.make(
    task.hidden["world"],
    max_episode_steps=-1,  # no limit
    disable_env_checker=True,
    **copy.deepcopy(task.hidden["options"]),
  )


def _name(world: Any) -> str:
  spec = getattr(world, "spec", None)
  return "" if spec is None else spec.id.rpartition("-v")[0]


def _kind(space: Any) -> str:
  return type(space).__name__


def _choices(world: Any) -> dict[str, int]:
  """Returns the numbers of the actions by their names."""
  space = world.action_space
  numbers = range(int(space.start), int(space.start + space.n))
  names = _ACTION_NAMES.get(_name(world), tuple(map(str, numbers)))
  return dict(zip(names, numbers, strict=True))


def _shown(names: list[str]) -> str:
  if len(names) > _MAX_ACTIONS_SHOWN:
    return f"{names[0]} to {names[-1]}"
  return ", ".join(names)


def _frozen_lake_map(inner: Any, state: int) -> str:
  row, column = divmod(state, inner.ncol)
  cells = [[cell.decode() for cell in line] for line in inner.desc]
  cells[row][column] = "P"
  return "\n".join(" ".join(line) for line in cells)


def _taxi_map(inner: Any, state: int) -> str:
  """The map with its walls `|`, the taxi as T; what it hides is in words."""
  row, column, passenger, destination = inner.decode(state)
  lines = [[cell.decode() for cell in line] for line in inner.desc]
  lines[row + 1][2 * column + 1] = "T"
  places = dict(zip(_TAXI_PLACES, inner.locs, strict=True))
  here = [name for name, place in places.items() if place == (row, column)]
  where = f"at {here[0]}" if here else "on the road"
  riding = passenger == len(_TAXI_PLACES)
  found = "in the taxi" if riding else f"at {_TAXI_PLACES[passenger]}"
  text = "\n".join("".join(line) for line in lines)
  return (
    f"{text}\nThe taxi is {where}, the passenger {found}; the destination is"
    f" {_TAXI_PLACES[destination]}."
  )
