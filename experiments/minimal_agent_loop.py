"""Agentic reinforcement learning, whole, in one file.

An agent books flights by talking to a desk. What it says and what it hears are
one sequence of words; only what it says is trained, by one number per episode.
`python experiments/minimal_agent_loop.py` takes less than a minute on one core.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import arl_jax as arl

FLIGHTS = ["A", "B", "C", "D"]
SPOKEN = ["search", "book", *FLIGHTS]  # what the agent can say
WORDS = [*SPOKEN, "cheapest!", "free", "full", "booked", "what?"]
MAX_TURNS = 4
LENGTH = 1 + 4 * MAX_TURNS  # the request; per turn, 2 said and 2 heard at most
NUM_TASKS, GROUP_SIZE = 16, 16  # of a step: tasks, and episodes of each task
WIDTH, NUM_LAYERS, NUM_HEADS = 32, 2, 4  # of the policy


# ENVIRONMENT: it has a state that the agent cannot see, only ask about.


class Desk:
  """Sells flights; the task is to book the cheapest one that has a seat."""

  def __init__(self, task: int):
    rng = np.random.default_rng(task)
    self.by_price = rng.permutation(FLIGHTS).tolist()
    self.num_full = rng.choice(3, p=[0.5, 0.3, 0.2])  # of the cheapest ones
    self.told: tuple[str, ...] = ()  # all that the agent knows of this

  def answer(self, call: list[str]) -> tuple[list[str], bool, float]:
    """Returns what the agent hears, whether that was the end, the reward."""
    shown = len(self.told) // 2
    if call[0] == "search" and shown < len(FLIGHTS):  # the next one by price
      seat = "full" if shown < self.num_full else "free"
      self.told += (self.by_price[shown], seat)
      return list(self.told[-2:]), False, 0.0
    if call[0] == "book" and call[1] in self.told:
      right = call[1] == self.by_price[self.num_full]
      return ["booked"], True, float(right)  # it sounds alike when it is wrong
    return ["what?"], False, 0.0  # a senseless call has an answer, too


# POLICY: a small transformer, from the words so far to logits of the next one.


def init_policy(key):
  shapes = {
    "words": (len(WORDS), WIDTH),
    "places": (LENGTH, WIDTH),
    "attend": (NUM_LAYERS, WIDTH, 3 * WIDTH),
    "mix": (NUM_LAYERS, WIDTH, WIDTH),
    "up": (NUM_LAYERS, WIDTH, 4 * WIDTH),
    "down": (NUM_LAYERS, 4 * WIDTH, WIDTH),
    "speak": (WIDTH, len(SPOKEN)),
  }
  keys = jax.random.split(key, len(shapes))
  params = {
    name: jax.random.normal(k, shape) / np.sqrt(shape[-2])
    for k, (name, shape) in zip(keys, shapes.items(), strict=True)
  }
  return {**params, "speak": 0.1 * params["speak"]}  # tries everything at first


def rms_norm(x):
  return x * jax.lax.rsqrt(jnp.mean(x**2, axis=-1, keepdims=True) + 1e-6)


def policy(params, tokens):  # [B, T] to [B, T, spoken]
  x = params["words"][tokens] + params["places"]
  heads = (*tokens.shape, NUM_HEADS, WIDTH // NUM_HEADS)
  for i in range(NUM_LAYERS):
    parts = jnp.split(rms_norm(x) @ params["attend"][i], 3, axis=-1)
    query, keys, values = (part.reshape(heads) for part in parts)
    seen = jax.nn.dot_product_attention(query, keys, values, is_causal=True)
    x += seen.reshape(x.shape) @ params["mix"][i]
    x += jax.nn.relu(rms_norm(x) @ params["up"][i]) @ params["down"][i]
  return rms_norm(x) @ params["speak"]


@jax.jit
def sample(params, tokens, lengths, key):
  logits = policy(params, tokens)[jnp.arange(len(tokens)), lengths - 1]
  return jax.random.categorical(key, logits)


# AGENT LOOP: say something, hear the answer, until the task or patience ends.


class Episode:
  """One conversation, written down while it happens."""

  def __init__(self, task: int):
    self.task, self.desk, self.ended = task, Desk(task), False
    self.tokens = [WORDS.index("cheapest!")]
    self.turn_ids = [-1]  # the turn in which the agent said a word, -1: heard
    self.states, self.rewards = [], []  # before each turn, after each turn


def play(params, tasks, key) -> list[Episode]:
  episodes = [Episode(int(task)) for task in tasks]
  for turn in range(MAX_TURNS):
    for place in range(2):
      tokens = pad([e.tokens for e in episodes], LENGTH, fill=0)
      lengths = np.array([len(e.tokens) for e in episodes])
      word_key = jax.random.fold_in(key, 2 * turn + place)
      said = np.asarray(sample(params, tokens, lengths, word_key)).tolist()
      for e, word in zip(episodes, said, strict=True):
        # Only "book" takes a second word.
        if not e.ended and (place == 0 or WORDS[e.tokens[-1]] == "book"):
          e.tokens.append(word)
          e.turn_ids.append(turn)
    for e in [e for e in episodes if not e.ended]:
      e.states.append((e.task, e.desk.told))
      call = [WORDS[word] for word in e.tokens[e.turn_ids.index(turn) :]]
      heard, e.ended, reward = e.desk.answer(call)
      e.rewards.append(reward)
      e.tokens += [WORDS.index(word) for word in heard]
      e.turn_ids += [-1] * len(heard)
  return episodes


# TRAJECTORY: τ = request, said, heard, said, ... One row of words per episode.


def pad(rows, width, fill):
  return np.array([[*row, *[fill] * (width - len(row))] for row in rows])


def trajectories(episodes: list[Episode]):
  tokens = pad([e.tokens for e in episodes], LENGTH, fill=0)
  turn_ids = pad([e.turn_ids for e in episodes], LENGTH, fill=-1)
  rewards = pad([e.rewards for e in episodes], MAX_TURNS, fill=0.0)
  no_turn = [None] * MAX_TURNS  # its id is -1
  states = [s for e in episodes for s in [*e.states, *no_turn][:MAX_TURNS]]
  return tokens, turn_ids, rewards, arl.dense_ids(states).reshape(rewards.shape)


optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(3e-3))


@jax.jit
def learn(params, opt_state, tokens, turn_ids, rewards, state_ids):
  # MASK: 1 where the agent spoke. What it heard is read, never imitated.
  action_mask, turn_mask = turn_ids >= 0, state_ids >= 0

  # RETURNS: R(τ), one number for all that was said in an episode.
  returns = arl.episode_returns(rewards, turn_mask)

  # STEP ADVANTAGES: A_t = R(τ) - R̄(s_t), R̄ the mean over all who stood in
  # state s_t: who did better from there than the others, by how much?
  spread = jnp.broadcast_to(returns[:, None], turn_mask.shape)
  advantages = arl.step_baseline_advantages(
    spread, state_ids, turn_mask, num_states=state_ids.size
  )

  # LOSS: -A_t log π(word | words before it), a mean over the words said.
  def loss(params):
    logprobs = arl.token_logprobs(policy(params, tokens), tokens)
    per_word = arl.broadcast_turns(advantages, turn_ids)
    losses = arl.policy_gradient_loss(logprobs, per_word, action_mask)
    return arl.aggregate(losses, action_mask)

  # UPDATE: one step downhill; then play again with what was learned.
  updates, opt_state = optimizer.update(jax.grad(loss)(params), opt_state)
  return optax.apply_updates(params, updates), opt_state, returns.mean()


def evaluate(name: str, params, key) -> float:
  episodes = play(params, range(10**6, 10**6 + 256), key)
  success = float(np.mean([sum(e.rewards) for e in episodes]))
  print(f"{name} training: success {success:.2f} on 256 other tasks, such as")
  print(" ", *(WORDS[word] for word in episodes[0].tokens), flush=True)
  return success


def main(num_steps: int = 200, seed: int = 0) -> tuple[float, float]:
  """Trains an agent; returns its success before and after."""
  init_key, play_key = jax.random.split(jax.random.key(seed))
  params = init_policy(init_key)
  opt_state = optimizer.init(params)
  before = evaluate("before", params, play_key)
  for step in range(1, num_steps + 1):
    tasks = np.repeat(np.arange(NUM_TASKS) + step * NUM_TASKS, GROUP_SIZE)
    episodes = play(params, tasks, jax.random.fold_in(play_key, step))
    rows = trajectories(episodes)
    params, opt_state, success = learn(params, opt_state, *rows)
    if step % 10 == 0:
      print(f"step {step:3d} {success:.2f} {'#' * round(50 * float(success))}")
  return before, evaluate("after", params, play_key)


if __name__ == "__main__":
  main()
