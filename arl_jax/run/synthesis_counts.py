"""What a synthesis made and dropped: as a table, or why nothing is left."""

from collections.abc import Mapping

# By stage: of the method, of the filters, of the mix.
Counts = Mapping[str, Mapping[str, int]]
# Of numbers like `kept/NAME`.
_NUM_SHOWN = 8
# By the stage that kept nothing, what that means and what to do about it.
_NOTHING = {
  "experts": (
    "no episode of the experts goes the same way when it is played again",
    "Use another --method",
  ),
  "rejection": (
    "none of the episodes that the policy of {workdir} played succeeded",
    "Train it for longer, or give it more tries with --num_samples or --number",
  ),
  "failures": (
    "none of the episodes that the policy of {workdir} played ended as a"
    " failure",
    "Keep its successes with --method=rejection",
  ),
  "recovery": (
    "no mistake could be made good in an episode of the experts",
    "Play more with --number",
  ),
  "hindsight": (
    "no failure achieved what another request asks for",
    "Play more with --number, or take the failures of another policy with"
    " --workdir",
  ),
  "graph": (
    "no path of tools solved a task",
    "Make more with --number",
  ),
  "filters": (
    "the filters dropped all that was made",
    "Play more with --number, or keep all with --filters=false",
  ),
}
_NO_FAILURES = (
  "Have the experts fail more often with a lower config.warmup.careful_fraction"
)
_TOO_LONG = (
  "Raise config.rollout.max_length, or keep what cannot be trained on with it"
  " with --filters=false"
)


def format_counts(counts: Counts) -> str:
  """Returns the counts of all stages as a table, without the rarest kinds."""
  shown = {stage: _fold(numbers) for stage, numbers in counts.items()}
  width = max(len(name) for numbers in shown.values() for name in numbers)
  lines: list[str] = []
  for stage, numbers in shown.items():
    lines.append(stage)
    lines += [f"  {name:<{width}}  {n:>6}" for name, n in numbers.items()]
  return "\n".join(lines)


def explain_nothing(counts: Counts, *, workdir: str | None) -> str:
  """Says why nothing is left, what was counted, and what to do about it.

  Args:
    counts: of all stages, in their order; one of them kept nothing.
    workdir: of the policy that played, if one did.
  """
  empty = "experts"
  told: list[str] = []
  for stage, numbers in counts.items():
    found = [f"{n} {name}" for name, n in numbers.items() if n]
    told.append(f"{stage}: {', '.join(found) or 'none given'}")
    if numbers.get("kept") == 0:
      empty = stage
      break
  why, advice = _NOTHING[empty]
  numbers = counts[empty]
  if numbers.get("too_many_tokens"):
    advice = _TOO_LONG
  elif empty == "hindsight" and numbers["given"] == numbers["succeeded"]:
    advice = _NO_FAILURES
  return f"{why.format(workdir=workdir)} ({'; '.join(told)}). {advice}"


def _fold(numbers: Mapping[str, int]) -> dict[str, int]:
  """Sums the kinds of kept episodes up that are too many to show."""
  kinds = sorted(
    (name for name in numbers if "/" in name), key=lambda name: -numbers[name]
  )
  rare = kinds[_NUM_SHOWN:]
  found = {name: numbers[name] for name in numbers if name not in rare}
  others = {f"kept/{len(rare)} others": sum(numbers[name] for name in rare)}
  return found | (others if rare else {})
