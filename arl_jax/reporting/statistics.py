"""Estimates success rates from counts."""

import math


def wilson_interval(
  successes: float, n: int, *, z: float = 1.959963984540054
) -> tuple[float, float]:
  """Returns Wilson's score interval of a success rate.

  With p = successes / n, its bounds are

    (p + z² / 2n ± z √(p (1 - p) / n + z² / 4n²)) / (1 + z² / n).

  Reference: Wilson, 1927, Probable inference, the law of succession, and
  statistical inference.

  Args:
    successes: how many of the `n` succeeded; a sum of rates will do.
    n: how many there were.
    z: the normal quantile; its default gives 95 %.

  Returns:
    Lower and upper bound, within [0, 1]; (0, 1) if `n` is 0.

  Raises:
    ValueError: unless 0 <= successes <= n.

  Examples:
    >>> low, high = wilson_interval(8, 10)
    >>> round(low, 3), round(high, 3)
    (0.49, 0.943)
  """
  if not 0 <= successes <= n:
    raise ValueError(
      f"successes is {successes}; expected 0 to n, which is {n}."
    )
  if n == 0:
    return 0.0, 1.0
  rate, spread = successes / n, z * z / n
  center = rate + spread / 2
  radius = math.sqrt(spread * (rate * (1 - rate) + spread / 4))
  low = (center - radius) / (1 + spread)
  high = (center + radius) / (1 + spread)
  # Rounding must not move a bound off the rates that are certain.
  return (
    0.0 if successes == 0 else max(low, 0.0),
    1.0 if successes == n else min(high, 1.0),
  )


def pass_at_k(n: int, c: int, k: int) -> float:
  """Returns the chance that at least one of k samples is right.

  The unbiased estimate from n samples, c of them right, is
  1 - C(n - c, k) / C(n, k).

  Reference: Chen et al., 2021, Evaluating large language models trained on
  code, arXiv:2107.03374.

  Args:
    n: samples that were drawn for the task.
    c: how many were right.
    k: samples that an attempt may use.

  Returns:
    The estimate, within [0, 1].

  Raises:
    ValueError: unless 0 <= c <= n and 1 <= k <= n.

  Examples:
    >>> pass_at_k(4, 1, 2)
    0.5
  """
  if not 0 <= c <= n:
    raise ValueError(f"c is {c}; expected 0 to n, which is {n}.")
  if not 1 <= k <= n:
    raise ValueError(f"k is {k}; expected 1 to n, which is {n}.")
  return 1.0 - math.comb(n - c, k) / math.comb(n, k)
