"""How many tokens an episode to imitate has for the policy that will."""

from collections.abc import Callable
import pathlib

from arl_jax.run.imitation import synthetic_row
from arl_jax.run.initial_policy import blame_policy, make_tokenizer
from arl_jax.run.parts import tokenizer_texts
from arl_jax.run.settings import Settings
from arl_jax.run.suite import Suite
from arl_jax.synthesis.synthetic_episode import SyntheticEpisode
from arl_jax.text.chat import ChatFormat


def make_counter(
  settings: Settings,
  suite: Suite,
  *,
  saved_tokenizer: pathlib.Path | None = None,
) -> Callable[[SyntheticEpisode], int]:
  """Returns a function that counts the tokens of an episode's row.

  Args:
    settings: of the run that will imitate.
    suite: its environment, on whose experts a small tokenizer is trained.
    saved_tokenizer: folder of the tokenizer of a run of these settings.

  Raises:
    ConfigError: the policy's tokenizer cannot be loaded.
  """
  with blame_policy(settings.policy):
    tokenizer = make_tokenizer(
      settings.policy,
      texts=lambda: tokenizer_texts(suite, seed=settings.seed),
      split_pattern=suite.split_pattern,
      saved_tokenizer=saved_tokenizer,
    )
  chat = ChatFormat(tokenizer)
  return lambda episode: len(
    synthetic_row(episode, chat=chat, tokenizer=tokenizer)
  )
