"""What an episode that a script played is worth: what training would pay."""

from collections.abc import Mapping
from types import MappingProxyType

from arl_jax.episode import Episode, EpisodeStatus, Turn
from arl_jax.rewards.compose import Reward, add_rewards
from arl_jax.synthesis.replay import Played

SUCCESS_ALONE: Mapping[str, float] = MappingProxyType({"success": 1.0})
NO_REWARDS: Mapping[str, Reward] = MappingProxyType({})


def played_reward(
  played: Played,
  weights: Mapping[str, float],
  reward_fns: Mapping[str, Reward] = NO_REWARDS,
) -> float:
  """The reward of an episode: of all its steps, and of its end.

  Args:
    played: to its end.
    weights: of each component by name; one without a weight counts nothing.
    reward_fns: further components, as an `Actor` has them. They see the
      episode as text: without a policy there are no rows of tokens.

  Raises:
    ValueError: a reward has the name of a component of the environment, or
      pays what is no finite number.
  """
  return add_rewards(
    _as_episode(played, weights), reward_fns, weights
  ).total_reward


def _as_episode(played: Played, weights: Mapping[str, float]) -> Episode:
  """The episode that an actor would have made."""
  components: dict[str, float] = {}
  turns: list[Turn] = []
  states = [None, *(result.state_key for result in played.results)]
  last = len(played.turns) - 1
  for index, (turn, result) in enumerate(
    zip(played.turns, played.results, strict=True)
  ):
    reward = 0.0
    for part in (result.rewards, played.scores if index == last else {}):
      for name, value in part.items():
        components[name] = components.get(name, 0.0) + value
        reward += weights.get(name, 0.0) * value
    turns.append(
      Turn(
        action=turn.action,
        finish_reason="stop",
        observations=tuple(result.observations),
        reward=reward,
        num_tool_calls=result.num_tool_calls,
        num_tool_errors=result.num_tool_errors,
        state_key=states[index],
      )
    )
  return Episode(
    task=played.task,
    member=0,
    status=EpisodeStatus.TERMINATED
    if played.terminated
    else EpisodeStatus.MAX_TURNS,
    rows=(),
    turns=tuple(turns),
    prompt=played.turns[0].observations if played.turns else (),
    reward_components=components,
  )
