"""The workload on google-tunix 0.1.7: its own sampler and GRPO learners.

python experiments/throughput/peer.py --mode plain
"""

import contextlib
import importlib.metadata
import os
import time

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from flax import nnx
import jax
import numpy as np
import optax
from tunix.models.qwen3 import model as qwen3
from tunix.rl import rl_cluster
from tunix.rl.agentic import agentic_grpo_learner
from tunix.rl.agentic.agents import agent_types, base_agent
from tunix.rl.agentic.environments import base_environment
from tunix.rl.grpo import grpo_learner
from tunix.rl.rollout import base_rollout
import workload
from workload import Workload

MAX_CONCURRENT_EPISODES = 8

# What the members of each prompt's group said, turn by turn.
Answers = dict[str, list[list[str]]]


class Numbers:
  """A tokenizer without words: text is ids in decimal."""

  bos_token = ""
  eos_token = ""

  def __init__(self, vocab_size: int):
    self._vocab_size = vocab_size

  def encode(self, text, **_):
    return workload.to_ids(text)

  def decode(self, ids, **_):
    return workload.to_text(ids)

  def bos_id(self):
    return 0  # none is added

  def eos_id(self):
    return self._vocab_size  # never sampled

  def pad_id(self):
    return 2


class NoMarkup:
  """A chat template that joins the messages."""

  def parse(self, messages, add_generation_prompt=False, is_first_msg=False):
    del add_generation_prompt, is_first_msg
    return " ".join(message["content"] for message in messages)

  def update_assistant_end_tokens(self, tokens):
    return tokens, 0


class Agent(base_agent.ConversationAgentBase):
  """Says what the policy sampled."""

  def _init_messages(self, system_prompt):
    del system_prompt
    self._messages = []

  def update_from_model(self, response, **_):
    self._messages.append({"role": "assistant", "content": response})
    action = agent_types.Action(action=response)
    self._trajectory.steps.append(
      agent_types.Step(action=action, model_response=response)
    )
    return action


class Scale(base_environment.BaseTaskEnv):
  """Answers every turn but the last, and pays at the end."""

  def __init__(self, task, *, work: Workload, answers: Answers, **group):
    super().__init__(task, max_steps=work.num_turns, **group)
    self._work = work
    self._actions: list[str] = []
    answers[self._prompt()].append(self._actions)

  def _initial_observation(self):
    return {"prompts": self._prompt()}

  def _step_impl(self, action):
    self._actions.append(action)
    answer = workload.make_observation(self._work, self.step_count)
    scores = [workload.score(self._work, a) for a in self._actions]
    ended = self.step_count >= self._work.num_turns
    reward = float(np.mean(scores)) if ended else 0.0
    text = workload.to_text(answer)
    return base_environment.EnvStepResult(text, reward, ended, {})

  def _prompt(self) -> str:
    return str(np.ravel(self.task["prompts"])[0])


class Probe:
  """Stands between learner and engine to cut turns and to end steps."""

  def __init__(self, engine, work: Workload, meter: workload.Meter):
    self._engine, self._work, self._meter = engine, work, meter
    self._generate = engine.generate
    self._update_actor = engine.update_actor
    self._num_sampled: list[int] = []
    self._started = self._rolled = 0.0
    engine.generate = self.generate
    engine.update_actor = self.update_actor

  def start(self) -> None:
    self._started = time.perf_counter()
    self._meter.start()

  def generate(self, *args, **kwargs):
    """Samples; a random model ends no turn, so a limit does."""
    budget = kwargs.get("max_generation_steps")
    if budget is not None:
      kwargs["max_generation_steps"] = min(budget, self._work.turn_tokens)
    output = self._generate(*args, **kwargs)
    # Episodes come from several threads; appending needs no lock.
    self._num_sampled.append(sum(len(tokens) for tokens in output.tokens))
    self._rolled = time.perf_counter()
    return output

  def update_actor(self, *args, **kwargs):
    """Updates, which ends the step."""
    output = self._update_actor(*args, **kwargs)
    model = self._engine.actor_trainer.model
    jax.block_until_ready(jax.tree.leaves(nnx.state(model)))
    now = time.perf_counter()
    self._meter.end_step(
      rollout=self._rolled - self._started,
      update=now - self._rolled,
      sampled=sum(self._num_sampled),
    )
    self._started = now
    self._num_sampled.clear()
    return output


def make_model(work: Workload, mesh) -> qwen3.Qwen3:
  config = qwen3.ModelConfig(
    num_layers=work.num_layers,
    vocab_size=work.vocab_size,
    embed_dim=work.model_dim,
    hidden_dim=work.mlp_dim,
    num_heads=work.num_heads,
    head_dim=work.head_dim,
    num_kv_heads=work.num_kv_heads,
    rope_theta=1_000_000,
    norm_eps=1e-6,
    use_tied_embedding=True,
  )
  with mesh:
    model = qwen3.Qwen3(config, rngs=nnx.Rngs(0))
    state = nnx.state(model)
    places = jax.tree.map(
      lambda spec: jax.sharding.NamedSharding(
        mesh, spec or jax.sharding.PartitionSpec()
      ),
      nnx.get_partition_spec(state),
    )
    nnx.update(model, jax.tree.map(jax.device_put, state, places))
  return model


def make_engine(work: Workload, mesh) -> rl_cluster.RLCluster:
  return rl_cluster.RLCluster(
    actor=make_model(work, mesh),
    reference=make_model(work, mesh) if work.kl_weight else None,
    tokenizer=Numbers(work.vocab_size),
    cluster_config=rl_cluster.ClusterConfig(
      role_to_mesh={
        rl_cluster.Role.ACTOR: mesh,
        rl_cluster.Role.REFERENCE: mesh,
        rl_cluster.Role.ROLLOUT: mesh,
      },
      rollout_engine="vanilla",
      offload_to_cpu=False,
      training_config=training_config(work),
      rollout_config=rollout_config(work),
    ),
  )


def training_config(work: Workload) -> rl_cluster.RLTrainingConfig:
  return rl_cluster.RLTrainingConfig(
    actor_optimizer=optax.chain(
      optax.clip_by_global_norm(1.0), optax.adamw(work.learning_rate)
    ),
    eval_every_n_steps=10**9,
    max_steps=work.num_steps,
    # In prompts, each with its whole group.
    mini_batch_size=work.num_prompts,
    train_micro_batch_size=work.num_prompts,
    rollout_micro_batch_size=work.num_prompts,
    compute_logps_micro_batch_size=work.num_prompts,
  )


def rollout_config(work: Workload) -> base_rollout.RolloutConfig:
  length = work.padded_prompt_tokens + work.response_tokens
  if work.is_agentic:
    length *= 2  # later prompts hold earlier turns, and are padded again
  return base_rollout.RolloutConfig(
    max_tokens_to_generate=work.response_tokens,
    max_prompt_length=work.padded_prompt_tokens,
    kv_cache_size=1 << (length - 1).bit_length(),
    temperature=1.0,
    top_p=1.0,
    top_k=None,
    return_logprobs=True,
  )


def make_plain_learner(engine, work: Workload, answers: Answers):
  def reward(prompts, completions, **_):
    for prompt, completion in zip(prompts, completions, strict=True):
      answers[str(prompt)].append([completion])
    return [workload.score(work, completion) for completion in completions]

  config = grpo_learner.GRPOConfig(
    num_generations=work.group_size,
    beta=work.kl_weight,
    epsilon=0.2,
  )
  return grpo_learner.GRPOLearner(engine, config, reward_fns=reward)


def make_agentic_learner(engine, work: Workload, answers: Answers):
  config = agentic_grpo_learner.GRPOConfig(
    num_generations=work.group_size,
    beta=work.kl_weight,
    epsilon=0.2,
    system_prompt="",
    max_concurrency=MAX_CONCURRENT_EPISODES,
    # An episode that fills this exactly loses its last turn and its reward:
    # it changes what is learned, not what is computed.
    max_response_length=work.response_tokens,
  )
  return agentic_grpo_learner.GRPOLearner(
    engine,
    config,
    reward_fns=None,
    chat_parser=NoMarkup(),
    agent_class=Agent,
    env_class=Scale,
    env_kwargs={"work": work, "answers": answers},
  )


def make_batches(work: Workload) -> list[dict[str, np.ndarray]]:
  ids = [
    [workload.make_prompt(work, step, i) for i in range(work.num_prompts)]
    for step in range(work.num_steps)
  ]
  return [{"prompts": np.array([workload.to_text(p) for p in b])} for b in ids]


def share_of_distinct(group: list[list[str]]) -> float:
  return len({tuple(turns) for turns in group}) / len(group)


def main() -> None:
  work = workload.read_arguments(__doc__ or "")
  meter = workload.Meter(work, "google-tunix")
  mesh = jax.make_mesh(
    (1, 1), ("fsdp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2
  )
  engine = make_engine(work, mesh)
  probe = Probe(engine, work, meter)
  batches = make_batches(work)
  answers: Answers = {p: [] for batch in batches for p in batch["prompts"]}
  make = make_agentic_learner if work.is_agentic else make_plain_learner
  learner = make(engine, work, answers)
  probe.start()
  with contextlib.nullcontext() if work.is_agentic else mesh:
    learner.train(batches)
  meter.report(
    distinct=np.mean([share_of_distinct(group) for group in answers.values()]),
    jax=jax.__version__,
    version=importlib.metadata.version("google-tunix"),
  )


if __name__ == "__main__":
  main()
