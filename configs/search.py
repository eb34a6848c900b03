"""An agent learns to answer questions by searching, on two CPU cores.

The corpus is the CIA World Factbook; the questions are about countries that it
never met in training. A policy of 0.9 M parameters is warm-started on a mix of
careful and careless searches, then trained with GRPO on exact match alone, the
way Search-R1 does: `<search>`, `<information>` and `<answer>` tags, and no loss
on what was retrieved.

  make train CONFIG=configs/search.py

Hardware: 2 CPU cores. Results: experiments/search/README.md. Every key that can
be set, with its default: arl_jax/default_config.py; what the keys mean:
configs/flight_booking.py.

Variants, after a colon, alone or together, as in :kimi_researcher,runlocal:

  configs/search.py:search_r1        as published recipes do it: docs/recipes.md
  configs/search.py:deep_researcher
  configs/search.py:kimi_researcher
  configs/search.py:runlocal         two tiny steps, to see that all parts run
"""

from typing import Any

from ml_collections import config_dict

from arl_jax.default_config import apply_variants, default_config, shrink


def get_config(variant: str | None = None) -> config_dict.ConfigDict:
  """Returns the configuration; `variant` is what follows the colon."""
  config: Any = default_config("search")

  # -------------------------------------------------------- the environment
  # Level 1 asks for a fact, 2 compares two countries, 3 goes over a border, 4
  # compares neighbours. The small policy learns the first. Its warm start is
  # drilled on invented countries, or it would learn the real ones by heart.
  config.environment.levels = (1,)
  config.environment.num_invented = 30
  # It learns from scripts how to call, so the prompt is the question alone.
  config.environment.show_tools = False
  config.environment.update(top_k=2, snippet_chars=60)
  config.environment.max_passage_chars = 240
  config.policy.vocab_size = 1024

  # ---------------------------------------- the warm start, before any reward
  config.warmup.update(
    num_steps=800, batch_size=64, length_buckets=(96, 144, 192)
  )
  # What was read is predicted, too, a little: names come again in it, which
  # teaches to copy.
  config.warmup.observation_weight = 0.1
  config.warmup.optimizer.update(
    name="muon",
    learning_rate=0.02,
    schedule="cosine",
    warmup_steps=20,
    final_fraction=0.05,
  )

  # ------------------------------------------------- rollouts and the engine
  config.rollout.update(max_turns=10, max_tokens_per_turn=40, max_length=288)
  config.engine.update(
    num_slots=128,
    decode_rows=(32,),
    prefill_rows=(32, 128),
    prefill_lengths=(32, 96),
    kv_lengths=(160,),
  )

  # ------------------------------------------------------------ the learner
  config.loss.clip_high = 0.28
  config.optimizer.update(learning_rate=2e-4, warmup_steps=2)
  config.learner.update(
    num_steps=40,
    micro_batch_rows=2,
    packed_lengths=(288, 432),
  )
  config.evaluation.num_tasks = 200

  apply_variants(config, variant, VARIANTS)
  return config.lock()


def _use_search_r1(config: Any) -> None:
  """Tags, exact match, GRPO, and no loss on what was retrieved."""
  config.environment.update(style="tags", top_k=3)
  config.environment.reward_weights = {"success": 1.0}
  config.advantage.name = "group_relative"
  config.loss.update(
    surrogate="clipped",
    clip_low=0.2,
    clip_high=0.2,
    kl_weight=0.001,
    kl_estimator="k3",
  )
  config.learner.train_on_observations = False


def _use_deep_researcher(config: Any) -> None:
  """F1 with the format in it, and more turns."""
  config.environment.style = "hermes"
  config.environment.reward_weights = {"f1_or_penalty": 1.0}
  config.advantage.name = "group_relative"
  config.loss.surrogate = "clipped"
  config.rollout.update(max_turns=24, max_length=640)
  config.learner.packed_lengths = (640,)


def _use_kimi_researcher(config: Any) -> None:
  """REINFORCE, one update per rollout, decayed outcomes, fewer negatives."""
  config.environment.reward_weights = {"success": 1.0, "format": 1.0}
  config.advantage.update(name="decayed_outcome", discount=0.95)
  config.loss.surrogate = "policy_gradient"
  # As many turns as it takes: a context that is full is drawn up anew.
  config.rollout.update(
    mode="sync",
    max_staleness=0,
    max_turns=64,
    context="drop_observations",
    context_keep_turns=2,
    max_rows_per_episode=8,
  )
  config.filters.update(
    after_advantages=("nonzero_advantages", "negatives"),
    negative_keep_ratio=0.5,
  )
  config.learner.minibatches_per_step = 1


VARIANTS = {
  "search_r1": _use_search_r1,
  "deep_researcher": _use_deep_researcher,
  "kimi_researcher": _use_kimi_researcher,
  "runlocal": shrink,
}
