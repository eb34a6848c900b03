"""The tools of a search agent: one finds passages, one opens them."""

from collections.abc import Mapping, Sequence
import dataclasses
import types

from arl_jax.envs import search_tags
from arl_jax.envs.off_loop import call_off_loop
from arl_jax.envs.search_index import Index, Passage
from arl_jax.envs.tools import Tool, ToolError

NOTHING_FOUND = "nothing found"
_CUT = " ..."
_LINE_BREAK = " | "


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Hit:
  """One result, as a list of results shows it.

  Attributes:
    passage_id: opens the passage.
    title: of the passage.
    snippet: its text up to where it was cut.
    is_cut: whether there is more.
  """

  passage_id: str
  title: str
  snippet: str
  is_cut: bool


class SearchDesk:
  """The tools of one episode, and what they have shown.

  Args:
    index: what is searched; many desks may share one.
    top_k: results of a search.
    snippet_chars: characters of the text in a list of results.
    max_passage_chars: characters of an opened passage.
    timeout_seconds: the longest that a tool may take.
    inline: search on the event loop, which waits meanwhile; else in a thread.

  Attributes:
    shown: of each passage that was shown, as much of its text as was shown,
      in one line.
    num_searches: searches that were run.
    tools: by name.
  """

  def __init__(
    self,
    index: Index,
    *,
    top_k: int = 3,
    snippet_chars: int = 120,
    max_passage_chars: int = 2000,
    timeout_seconds: float = 10.0,
    inline: bool = False,
  ):
    for name, value in (
      ("top_k", top_k),
      ("snippet_chars", snippet_chars),
      ("max_passage_chars", max_passage_chars),
    ):
      if value < 1:
        raise ValueError(f"{name} is {value}; expected 1 or more")
    self._index = index
    self._top_k = top_k
    self._snippet_chars = snippet_chars
    self._max_passage_chars = max_passage_chars
    self.shown: dict[str, str] = {}
    self.num_searches = 0
    plain = (self._search_inline, self._open_inline)
    search, read = plain if inline else (self._search, self._open)
    self.tools: Mapping[str, Tool] = types.MappingProxyType(
      {
        tool.name: tool
        for tool in (
          Tool(
            name=search_tags.SEARCH,
            description=(
              f"Finds the {top_k} passages that fit a query best: id and title"
              " of each, and how it begins."
            ),
            parameters=_one_text("query", "Words to look for."),
            function=search,
            timeout_seconds=timeout_seconds,
            inline=inline,
          ),
          Tool(
            name=search_tags.OPEN,
            description="Shows the passage of an id.",
            parameters=_one_text("id", "As a list of results writes it."),
            function=read,
            timeout_seconds=timeout_seconds,
            inline=inline,
          ),
        )
      }
    )

  async def _search(self, query: str) -> str:
    self.num_searches += 1
    # What comes too late was not shown, so nothing is noted in the thread.
    return self._list(
      await call_off_loop(self._index.search, query, self._top_k, name="search")
    )

  def _search_inline(self, query: str) -> str:
    self.num_searches += 1
    return self._list(self._index.search(query, self._top_k))

  async def _open(self, id: str) -> str:
    return self._show(
      id, await call_off_loop(self._index.get, id.strip(), name="open")
    )

  def _open_inline(self, id: str) -> str:
    return self._show(id, self._index.get(id.strip()))

  def _list(self, passages: Sequence[Passage]) -> str:
    lines = []
    for passage in passages:
      text = passage.text[: self._snippet_chars]
      self._note(passage, text)
      snippet = _LINE_BREAK.join(text.split("\n"))
      title = " ".join(passage.title.split())
      cut = _CUT if len(text) < len(passage.text) else ""
      lines += [f"[{passage.passage_id}] {title}", f"{snippet}{cut}"]
    return search_tags.hide_tags("\n".join(lines)) or NOTHING_FOUND

  def _show(self, name: str, passage: Passage | None) -> str:
    if passage is None:
      raise ToolError(f"no passage {name}; open an id of a list of results")
    text = passage.text[: self._max_passage_chars]
    self._note(passage, text)
    cut = _CUT if len(text) < len(passage.text) else ""
    return search_tags.hide_tags(f"{passage.title}\n{text}{cut}")

  def _note(self, passage: Passage, text: str) -> None:
    before = self.shown.get(passage.passage_id, "")
    line = " ".join(text.split())
    self.shown[passage.passage_id] = max(before, line, key=len)


def read_hits(text: str) -> list[Hit]:
  """Reads a list of results back, two lines each; others are left out."""
  lines = text.split("\n")
  hits = []
  for head, snippet in zip(lines[::2], lines[1::2], strict=False):
    name, bracket, title = head.partition("] ")
    if bracket and name.startswith("["):
      hits.append(
        Hit(
          passage_id=name[1:],
          title=title,
          snippet=snippet.removesuffix(_CUT).replace(_LINE_BREAK, "\n"),
          is_cut=snippet.endswith(_CUT),
        )
      )
  return hits


def _one_text(name: str, description: str) -> dict[str, object]:
  return {
    "type": "object",
    "properties": {
      name: {"type": "string", "minLength": 1, "description": description}
    },
    "required": [name],
  }
