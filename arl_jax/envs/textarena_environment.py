"""Games of TextArena, for one player or against a scripted opponent.

TextArena draws from Python's global generator. Here its modules get another
one in place of it, which gives each game a generator of its own: games in
other threads, and whatever else draws, do not meet it.
"""

from collections.abc import Callable, Iterator, Mapping
import contextlib
import contextvars
import copy
import enum
import importlib
import itertools
import math
import operator
import random
import re
import sys
from typing import Any

from arl_jax.envs.environment import StepResult
from arl_jax.envs.off_loop import OffLoopEnvironment
from arl_jax.episode import Message, Task

INSTALL = "pip install textarena"
# Gets what the opponent is shown and a generator, returns its action.
Opponent = Callable[[str, random.Random], str]
_MAX_OPPONENT_ACTIONS = 1000
_LISTED = re.compile(r"(?:available|valid|legal)[^\n]*", re.IGNORECASE)
_MOVE = re.compile(r"\[[^\[\]]+\]")
_OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def make_task(
  game: str,
  *,
  seed: int = 0,
  num_players: int = 1,
  player: int = 0,
  options: Mapping[str, Any] | None = None,
) -> Task:
  """Makes the task of playing a game.

  Args:
    game: an id of TextArena without a suffix for wrappers, such as
      `TowerOfHanoi-v0`.
    seed: fixes the game, what is drawn while it is played included.
    num_players: 1 or 2.
    player: which of them the policy is.
    options: of the game's class, such as `num_disks`.
  """
  if num_players not in (1, 2):
    raise ValueError(f"num_players is {num_players}; expected 1 or 2")
  if not 0 <= player < num_players:
    raise ValueError(f"player is {player}; there are {num_players}")
  hidden = {
    "game": game,
    "num_players": num_players,
    "player": player,
    "options": dict(options or {}),
  }
  name = " ".join(f"{key}={value}" for key, value in hidden["options"].items())
  return Task(
    task_id=f"{game} {name} seed={seed} player={player}",
    prompt=f"Play {game}.",
    seed=seed,
    hidden=hidden,
  )


def random_listed_move(observation: str, generator: random.Random) -> str:
  """An opponent that draws one of the moves that the game lists as possible.

  Raises:
    ValueError: the game lists none.
  """
  listed = list(_LISTED.finditer(observation))
  moves = _MOVE.findall(listed[-1].group()) if listed else []
  if not moves:
    raise ValueError(
      "the game does not list the possible moves; give TextArenaEnv an"
      f" opponent that knows them. It was shown: {observation[-300:]!r}"
    )
  return generator.choice(moves)


class TextArenaEnv(OffLoopEnvironment):
  """One game; `make_task` makes the tasks.

  The policy is shown what the game has told it since its last action. The
  prompt of the task is not shown: games explain themselves. The opponent acts
  at once when it is its turn; its chance comes from the seed of the episode.

  The components are `reward`, the game's own at the end, 0 until then;
  `success`; and `bad_reward`. That is 1 if the game gave no finite number,
  which counts as 0. Countdown does so: after an invalid move it gives a text.

  Args:
    opponent: of games for two.
    success_reward: the least reward that is a success.
  """

  def __init__(
    self,
    *,
    opponent: Opponent = random_listed_move,
    success_reward: float = 1.0,
  ):
    super().__init__(_Game(opponent=opponent, success_reward=success_reward))


class _Game:
  def __init__(self, *, opponent: Opponent, success_reward: float):
    self._opponent = opponent
    self._success_reward = success_reward
    self._game: Any = None
    self._is_done = False

  def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    self._player = task.hidden["player"]
    self._num_players = task.hidden["num_players"]
    self._opponent_generator = random.Random(seed)
    self._generator = random.Random(task.seed)
    self._is_done = False
    self._news: list[str] = []
    with _drawing_from(self._generator):
      self._game = _make(task)
      self._game.reset(num_players=self._num_players, seed=task.seed)
      self._let_others_play()
    return self._messages()

  def step(self, action: str) -> StepResult:
    if self._game is None or self._is_done:
      raise RuntimeError("the game is over, or not begun; call reset() first")
    with _drawing_from(self._generator):
      self._is_done = bool(self._game.step(action)[0])
      if not self._is_done:
        self._let_others_play()
    return StepResult(
      observations=() if self._is_done else self._messages(),
      terminated=self._is_done,
      rewards={"turns": 1.0},
    )

  def score(self) -> Mapping[str, float]:
    if self._game is None:
      raise RuntimeError("score() needs reset() first")
    if not self._is_done:
      return {"success": 0.0, "reward": 0.0, "bad_reward": 0.0}
    rewards = self._game.close()[0] or {}
    found = rewards.get(self._player)
    reward = float(found) if isinstance(found, int | float) else math.nan
    if not math.isfinite(reward):
      return {"success": 0.0, "reward": 0.0, "bad_reward": 1.0}
    return {
      "success": float(reward >= self._success_reward),
      "reward": reward,
      "bad_reward": 0.0,
    }

  def _let_others_play(self) -> None:
    """Plays until it is the policy's turn or the game is over."""
    for _ in range(_MAX_OPPONENT_ACTIONS):
      player, observation = self._game.get_observation()
      text = self._text(player, observation)
      if player == self._player:
        self._news.append(text)
        return
      action = self._opponent(text, self._opponent_generator)
      self._is_done = bool(self._game.step(action)[0])
      if self._is_done:
        return
    raise RuntimeError(
      f"the opponent acted {_MAX_OPPONENT_ACTIONS} times in a row; expected"
      " actions that the game takes"
    )

  def _messages(self) -> tuple[Message, ...]:
    text = "\n".join(self._news).strip()
    self._news = []
    return (Message(role="user", content=text or "The game is over."),)

  def _text(self, player: int, observation: Any) -> str:
    """What a player is told, without its own actions."""
    lines: list[str] = []
    for parts in observation:
      # Author, text and kind; Countdown mixes up their order.
      kind = next(part for part in parts if isinstance(part, enum.Enum))
      text = next(part for part in parts if isinstance(part, str))
      author = next(part for part in parts if type(part) is int)
      is_own = author == player or self._num_players == 1
      if kind.name == "PLAYER_ACTION" and is_own:
        continue
      lines.append(text if author < 0 else f"Player {author}: {text}")
    return "\n".join(lines)


class _EpisodeRandom:
  """Stands for the module `random` in the modules of TextArena."""

  def __getattr__(self, name: str) -> Any:
    generator = _generator.get()
    if generator is not None and hasattr(generator, name):
      return getattr(generator, name)
    return getattr(random, name)


_generator: contextvars.ContextVar[random.Random | None] = (
  contextvars.ContextVar("textarena_generator", default=None)
)
_EPISODE_RANDOM = _EpisodeRandom()


@contextlib.contextmanager
def _drawing_from(generator: random.Random) -> Iterator[None]:
  token = _generator.set(generator)
  try:
    yield
  finally:
    _generator.reset(token)


def _make(task: Task) -> Any:
  """Makes a game that draws from the generator of the episode alone."""
  try:
    textarena = importlib.import_module("textarena")
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      f"games of TextArena need the package {error.name}; {INSTALL}"
    ) from error
  registry = importlib.import_module("textarena.envs.registration").ENV_REGISTRY
  # Wrappers would repeat the whole game in each observation.
  name = f"{task.hidden['game']}-raw"
  if name not in registry:
    raise ValueError(
      f"game is {task.hidden['game']!r}, which TextArena does not know;"
      " expected an id such as 'TowerOfHanoi-v0'"
    )
  importlib.import_module(registry[name].entry_point.partition(":")[0])
  for module_name, module in list(sys.modules.items()):
    if module_name.partition(".")[0] == "textarena":
      if getattr(module, "random", None) is random:
        vars(module)["random"] = _EPISODE_RANDOM
  return textarena.make(name, **copy.deepcopy(task.hidden["options"]))


def example_tasks() -> tuple[Task, ...]:
  """Returns a few games that `gold_actions` solves."""
  disks = {"num_disks": 5, "max_turns": 31}
  numbers = {"numbers": [3, 5, 7, 25], "target": 173}
  return (
    *(make_task("GuessTheNumber-v0", seed=seed) for seed in range(4)),
    make_task("GuessTheNumber-v0-hardcore", seed=4),
    make_task("TowerOfHanoi-v0"),
    make_task("TowerOfHanoi-v0", options=disks),
    make_task("Countdown-v0", options=numbers),
  )


def gold_actions(task: Task) -> tuple[str, ...]:
  """Returns actions that win GuessTheNumber, TowerOfHanoi or Countdown.

  Raises:
    ValueError: it is another game, or has no solution.
  """
  name = task.hidden["game"].partition("-")[0]
  if name not in _SOLVERS:
    raise ValueError(f"{name} has no solver; those that do: {list(_SOLVERS)}")
  with _drawing_from(random.Random(task.seed)):
    game = _make(task)
    game.reset(num_players=1, seed=task.seed)
  return tuple(_SOLVERS[name](game))


def _guess(game: Any) -> Iterator[str]:
  """Halves the range, as one does who knows nothing but the hints."""
  low, high = game.min_number, game.max_number
  while True:
    middle = (low + high) // 2
    yield f"[{middle}]"
    if middle == game.game_number:
      return
    if middle < game.game_number:
      low = middle + 1
    else:
      high = middle - 1


def _move_disks(game: Any) -> Iterator[str]:
  def move(number: int, source: str, target: str, other: str) -> Iterator[str]:
    if number:
      yield from move(number - 1, source, other, target)
      yield f"[{source} {target}]"
      yield from move(number - 1, other, target, source)

  return move(game.num_disks, "A", "C", "B")


def _combine(game: Any) -> Iterator[str]:
  """Tries all ways to combine two numbers; the result goes to the end."""

  def search(numbers: list[int]) -> list[str] | None:
    for i, j in itertools.permutations(range(len(numbers)), 2):
      left = [n for index, n in enumerate(numbers) if index not in (i, j)]
      for sign, operate in _OPERATIONS.items():
        result = operate(numbers[i], numbers[j])
        if result == game.target:
          return [f"[{i} {j} {sign}]"]
        rest = search([*left, result])
        if rest is not None:
          return [f"[{i} {j} {sign}]", *rest]
    return None

  actions = search(list(game.orig_numbers))
  if actions is None:
    raise ValueError(f"{game.target} cannot be reached")
  return iter(actions)


_SOLVERS: dict[str, Callable[[Any], Iterator[str]]] = {
  "GuessTheNumber": _guess,
  "TowerOfHanoi": _move_disks,
  "Countdown": _combine,
}
