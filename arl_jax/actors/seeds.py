"""Host seeds as explicit integers, each with a meaning."""

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def mix_seed(*parts: int) -> int:
  r"""Mixes integers into one seed of 31 bits.

  $h_0 = 0$, $h_{i+1} = s(h_i \oplus (p_i + \gamma))$ with s the finaliser of
  splitmix64 (a bijection on 64 bits) and $\gamma$ its odd constant; the seed
  is the upper 31 bits of the last h. The order of the parts matters:
  `mix_seed(1, 2)` is not `mix_seed(2, 1)`. It is arithmetic on Python
  integers, so it is the same on every machine and in every version.

  Reference: Steele, Lea and Flood, "Fast Splittable Pseudorandom Number
  Generators", OOPSLA 2014.

  Args:
    *parts: what the seed is for, the most general first: run, task, member,
      turn. Any integers; they count modulo 2^64.

  Returns:
    An integer in [0, 2^31), which fits an int32 as well as a uint32.

  Example:
    >>> mix_seed(0, 7, 1) == mix_seed(0, 7, 1) != mix_seed(0, 7, 2)
    True
  """
  state = 0
  for part in parts:
    state = (state ^ ((part + _GOLDEN) & _MASK)) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    state ^= state >> 31
  return state >> 33


def turn_seed(seed: int, turn: int) -> int:
  """Seed of the draws in one turn of an episode that has `seed`."""
  return mix_seed(seed, turn)


def episode_seed(run_seed: int, ordinal: int, member: int) -> int:
  """Seed of one member of the group at `ordinal` in the stream of tasks."""
  return mix_seed(run_seed, ordinal, member)
