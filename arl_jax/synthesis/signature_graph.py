"""A graph of tools: whose answers hold what another's parameters take.

Paths through it are sequences of calls in which each uses what those before it
found. They are sampled, expanded by a call between two others, and connected
to longer ones, as in Magnet (arXiv:2503.07826).
"""

from collections.abc import Iterable, Mapping, Sequence
import dataclasses
import random
import types
from typing import NamedTuple

from arl_jax.envs.tools import Tool

Path = tuple[str, ...]


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ToolSignature:
  """What a tool takes and returns, as kinds of values.

  Attributes:
    name: of the tool.
    takes: kind of each required parameter.
    returns: kinds of the values that its answer holds.
    after: kinds that have to be there though no parameter carries them, such
      as a list that it sorts.
  """

  name: str
  takes: Mapping[str, str]
  returns: tuple[str, ...] = ()
  after: tuple[str, ...] = ()

  @property
  def needs(self) -> frozenset[str]:
    """All kinds that have to be there before it is called."""
    return frozenset((*self.takes.values(), *self.after))


class Edge(NamedTuple):
  """Values of a kind flow from one tool to another; empty if annotated."""

  source: str
  target: str
  kind: str


def signature_of(
  tool: Tool,
  *,
  returns: Sequence[str],
  kinds: Mapping[str, str] | None = None,
  after: Sequence[str] = (),
) -> ToolSignature:
  """Reads a signature from a tool's schema.

  Args:
    tool: its required parameters count.
    returns: kinds that its answer holds, which no schema says.
    kinds: kind of a parameter where it is not the parameter's name.
    after: see `ToolSignature`.

  Raises:
    ValueError: `kinds` names no parameter of the tool.
  """
  kinds = kinds or {}
  unknown = set(kinds) - set(tool.parameter_names)
  if unknown:
    raise ValueError(
      f"kinds of {tool.name} has {sorted(unknown)}; its parameters are"
      f" {', '.join(tool.parameter_names)}"
    )
  required = tool.parameters.get("required", ())
  return ToolSignature(
    name=tool.name,
    takes={str(name): kinds.get(name, str(name)) for name in required},
    returns=tuple(returns),
    after=tuple(after),
  )


class SignatureGraph:
  """Tools and the flow of values between them.

  Args:
    signatures: of the tools.
    given: kinds of values that are there before any call.
    links: pairs of tools of which the first leads to the second though no
      value flows.

  Attributes:
    signatures: by name.
    given: as given.
    edges: in the order of the signatures.

  Raises:
    ValueError: two tools share a name, or a link names no tool.
  """

  def __init__(
    self,
    signatures: Iterable[ToolSignature],
    *,
    given: Iterable[str],
    links: Iterable[tuple[str, str]] = (),
  ):
    listed = list(signatures)
    self.signatures: Mapping[str, ToolSignature] = types.MappingProxyType(
      {one.name: one for one in listed}
    )
    if len(self.signatures) < len(listed):
      raise ValueError(f"two tools share a name: {[s.name for s in listed]}")
    self.given = frozenset(given)
    extra = tuple(links)
    for name in (name for link in extra for name in link):
      if name not in self.signatures:
        raise ValueError(
          f"a link names {name!r}; expected one of {', '.join(self.signatures)}"
        )
    self.edges = (
      *(
        Edge(source.name, target.name, kind)
        for source in listed
        for target in listed
        for kind in sorted(target.needs & set(source.returns))
      ),
      *(Edge(source, target, "") for source, target in extra),
    )
    self._pairs = {(edge.source, edge.target) for edge in self.edges}

  def feeds(self, source: str, target: str) -> bool:
    """Whether an edge leads from one tool to the other."""
    return (source, target) in self._pairs

  def is_sound(self, path: Sequence[str]) -> bool:
    """Whether each call is fed, uses an earlier one, and serves a later one.

    The first call uses what is given, and the last serves the goal.
    """
    known = set(self.given)
    for index, name in enumerate(path):
      if not self.signatures[name].needs <= known:
        return False
      before, after = path[:index], path[index + 1 :]
      if before and not any(self.feeds(other, name) for other in before):
        return False
      if after and not any(self.feeds(name, other) for other in after):
        return False
      known.update(self.signatures[name].returns)
    return len(path) > 0

  def sample_path(
    self, rng: random.Random, *, goal: str, max_length: int
  ) -> Path | None:
    """Draws a path without repetitions that ends at a tool.

    Args:
      rng: what the choices are drawn from.
      goal: the last tool.
      max_length: most calls.

    Returns:
      A sound path in which each call feeds the next; None if there is none.
    """
    names = list(self.signatures)

    def walk(path: Path, known: frozenset[str]) -> Path | None:
      if path and path[-1] == goal:
        return path if self.is_sound(path) else None
      if len(path) == max_length:
        return None
      for name in rng.sample(names, len(names)):
        reached = not path or self.feeds(path[-1], name)
        if name in path or not reached:
          continue
        if self.signatures[name].needs <= known:
          returned = self.signatures[name].returns
          found = walk((*path, name), known | set(returned))
          if found is not None:
            return found
      return None

    return walk((), self.given)

  def expand(
    self, path: Path, rng: random.Random, *, max_repeats: int = 2
  ) -> Path | None:
    """Inserts one more call whose answer feeds a later one.

    Args:
      path: to make longer.
      rng: what the choice is drawn from.
      max_repeats: most calls of one tool in the result.

    Returns:
      A sound path, one call longer and with the same end; None if none is.
    """
    found = [
      longer
      for place in range(len(path))
      for name in self.signatures
      if path.count(name) < max_repeats
      and self.is_sound(longer := (*path[:place], name, *path[place:]))
    ]
    return rng.choice(sorted(set(found))) if found else None

  def connect(self, first: Path, second: Path) -> Path | None:
    """Puts a path behind another, whose last answer feeds it.

    Returns:
      The sound path of both; None if nothing flows between them.
    """
    joined = (*first, *second)
    linked = any(self.feeds(first[-1], name) for name in second)
    return joined if linked and self.is_sound(joined) else None
