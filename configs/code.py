"""An agent learns to reason with a code interpreter, on two CPU cores.

The questions take a program: sums of numbers too large to guess, word problems,
lists, and problems whose second program needs what the first one printed. A
policy of 0.8 M parameters is warm-started on a mix of careful and careless
episodes, then trained with GRPO on a binary reward: is the answer right?

  make train CONFIG=configs/code.py

Hardware: 2 CPU cores. Results: experiments/code/README.md. Every key that can
be set, with its default: arl_jax/default_config.py; what the keys mean:
configs/flight_booking.py.

Variants, after a colon, alone or together, as in :human_eval,runlocal:

  configs/code.py:human_eval  programs for HumanEval, judged by hidden tests, by
                              SmolLM2-135M-Instruct; needs arl-jax[code]
  configs/code.py:runlocal    two tiny steps, to see that all parts run
"""

from typing import Any

from ml_collections import config_dict

from arl_jax.default_config import apply_variants, default_config, shrink


def get_config(variant: str | None = None) -> config_dict.ConfigDict:
  """Returns the configuration; `variant` is what follows the colon."""
  config: Any = default_config("code")

  # -------------------------------------------------------- the environment
  # Level 1 is one expression, 2 a word problem, 3 needs a function or a list,
  # 4 takes two programs.
  config.environment.levels = (1, 2, 3, 4)
  # Needs no process of its own, and takes a tenth of a millisecond.
  config.environment.sandbox = "monty"
  # It learns from scripts how to run programs; the prompt is the question.
  config.environment.show_tools = False

  # ---------------------------------------- the warm start, before any reward
  # Copying is learned from many episodes: at 24 in a batch it came late.
  config.warmup.update(num_steps=300, batch_size=64, length_buckets=(80, 128))
  config.warmup.optimizer.update(
    name="muon",
    learning_rate=0.02,
    schedule="cosine",
    warmup_steps=20,
    final_fraction=0.05,
  )

  # ------------------------------------------------- rollouts and the engine
  # Endless programs of many episodes wait for each other. That is no failure of
  # the environment, so the time of an episode ends first.
  config.rollout.update(
    max_turns=9,
    max_tokens_per_turn=48,
    max_length=192,
    step_timeout_seconds=150.0,
  )
  config.engine.update(
    num_slots=128,
    decode_rows=(32,),
    prefill_rows=(32, 128),
    prefill_lengths=(16, 48),
    kv_lengths=(96,),
  )

  # --------------------------------------------------------- which rows learn
  # A turn that neither runs a program nor answers voids its episode
  # (SimpleTIR); a truncated episode has no answer to learn from.
  config.filters.after_advantages = (
    "nonzero_advantages",
    "void_turns",
    "truncation",
  )
  config.filters.truncation_drop = "negative"

  # ------------------------------------------------------------ the learner
  config.loss.clip_high = 0.28
  config.optimizer.update(learning_rate=2e-4, warmup_steps=2)
  config.learner.update(
    num_steps=40, micro_batch_rows=2, packed_lengths=(192, 288)
  )
  config.evaluation.num_tasks = 200

  apply_variants(config, variant, VARIANTS)
  return config.lock()


def _use_human_eval(config: Any) -> None:
  """Real programs by real weights; expect few successes of so small a model."""
  config.policy.update(kind="gguf", num_frozen_layers=15)
  # A program of a policy runs in a world of its own.
  config.environment.update(
    source="human_eval",
    sandbox="bubblewrap",
    show_tools=True,
    timeout_seconds=10.0,
  )
  config.warmup.update(num_steps=0)
  config.rollout.update(
    tasks_per_step=4,
    max_turns=4,
    max_tokens_per_turn=256,
    max_length=1024,
    step_timeout_seconds=1000.0,
    episode_timeout_seconds=900.0,
    group_timeout_seconds=1800.0,
  )
  config.engine.update(
    num_slots=32,
    decode_rows=(8,),
    prefill_rows=(8,),
    prefill_lengths=(64, 256),
    kv_lengths=(256, 512),
  )
  config.optimizer.update(learning_rate=1e-5, warmup_steps=4)
  config.learner.update(
    num_steps=20,
    minibatches_per_step=1,
    packed_lengths=(),
    length_buckets=(512,),
    micro_batch_rows=4,
  )
  config.evaluation.num_tasks = 32


VARIANTS = {
  "human_eval": _use_human_eval,
  "runlocal": shrink,
}
