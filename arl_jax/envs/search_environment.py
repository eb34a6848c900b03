"""Question answering with a search tool, judged on the answer in its tag.

The policy searches, opens passages and answers between `<answer>` tags. It
writes its calls as tags too (`search_tags`), or as JSON. How it is judged is
written in `rewards/answers.py` and `rewards/search.py`.
"""

from collections.abc import Iterator, Mapping
import dataclasses
import hashlib
from typing import Any, Literal

from arl_jax.envs import search_tags, search_tasks, tool_environment
from arl_jax.envs.action_bound import bound_attempts
from arl_jax.envs.environment import StepResult
from arl_jax.envs.search_index import Index
from arl_jax.envs.search_tags import TagAttempt, TagStatus
from arl_jax.envs.search_tools import SearchDesk
from arl_jax.envs.tools import RunStatus, run_tool
from arl_jax.episode import Message, Task, ToolCall
from arl_jax.rewards import answers, search
from arl_jax.text import tool_calls

SearchStyle = Literal["tags", "hermes"]
STYLES: tuple[SearchStyle, ...] = ("tags", "hermes")
REWARDS = (
  "success",
  "f1",
  "f1_or_penalty",
  "format",
  "support",
  "search_cost",
  "answered",
  "turns",
  "tool_errors",
)
PREMATURE = "error: answer alone, once you have read what was found"
TOO_MANY = "the rest was not run: an action may have at most {} calls"
NO_TAG = "error: search, open a passage, or give <answer>"
_TAG_USAGE = """\
To find passages: <search>words to look for</search>
To read a passage: <open>its id</open>
What is found comes between <information> tags.
To finish: <answer>a short answer</answer>"""
_ANSWER_USAGE = "The answer is short, between <answer> and </answer>."
_PARAMETERS = {search_tags.SEARCH: "query", search_tags.OPEN: "id"}
# A tool that breaks is not the policy's mistake; an unknown id is no mistake
# of form.
_WELL_FORMED = (
  RunStatus.OK,
  RunStatus.REFUSED,
  RunStatus.FAILED,
  RunStatus.TIMEOUT,
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
  """One attempt in an action: a call, an answer, or a mistake."""

  start: int
  call: ToolCall | None = None
  answer: str | None = None
  error: str = ""


class SearchEnv:
  """One episode of question answering.

  An action with calls is answered with what they found. An action with an
  answer and no call ends the episode. An answer beside calls is refused,
  since it was given before their results were read. So are several answers.
  An action without any attempt is answered with what is expected.

  Args:
    index: what is searched; many episodes may share one.
    style: `tags`, or `hermes` for calls in JSON; the answer is a tag in both.
    max_calls_per_turn: calls of one action that are run, the first ones;
      malformed ones count. An action takes so many times `timeout_seconds` at
      most. The rest is answered with one error, as malformed.
    show_tools: whether a system message says how to call.
    system_prompt: text that the system message starts with; None for none.
    top_k: results of a search.
    snippet_chars: characters of a passage in a list of results.
    max_passage_chars: characters of an opened passage.
    timeout_seconds: the longest that a call may take.
    inline: search on the event loop. For scripted episodes.
  """

  def __init__(
    self,
    index: Index,
    *,
    style: SearchStyle = "tags",
    max_calls_per_turn: int = 4,
    show_tools: bool = True,
    system_prompt: str | None = None,
    top_k: int = 3,
    snippet_chars: int = 120,
    max_passage_chars: int = 2000,
    timeout_seconds: float = 10.0,
    inline: bool = False,
  ):
    if style not in STYLES:
      raise ValueError(f"style is {style!r}; expected one of {STYLES}")
    if max_calls_per_turn < 1:
      raise ValueError(
        f"max_calls_per_turn is {max_calls_per_turn}; expected 1 or more"
      )
    self._index = index
    self._style: SearchStyle = style
    self._max_calls_per_turn = max_calls_per_turn
    self._show_tools = show_tools
    self._system_prompt = system_prompt
    self._desk_options: dict[str, Any] = {
      "top_k": top_k,
      "snippet_chars": snippet_chars,
      "max_passage_chars": max_passage_chars,
      "timeout_seconds": timeout_seconds,
      "inline": inline,
    }
    self._staged: tuple[Task, SearchDesk] | None = None
    self._answer: str | None = None
    self._num_malformed = 0

  async def reset(self, task: Task, *, seed: int) -> tuple[Message, ...]:
    """Returns the question, after how to call.

    Raises:
      ValueError: the task has no right answers, or its evidence is no list of
        pairs.
    """
    del seed  # nothing here is random
    search_tasks.accepted_of(task)
    search_tasks.evidence_of(task)
    desk = SearchDesk(self._index, **self._desk_options)
    self._staged = (task, desk)
    self._answer, self._num_malformed = None, 0
    user = Message(role="user", content=task.prompt)
    parts = [] if self._system_prompt is None else [self._system_prompt]
    if self._show_tools:
      parts.append(self._usage(desk))
    if not parts:
      return (user,)
    return (Message(role="system", content="\n".join(parts).strip()), user)

  async def step(self, action: str) -> StepResult:
    """Runs the calls of an action, or takes its answer."""
    desk = self._stage()[1]
    if self._answer is not None:
      raise RuntimeError("step() after the final answer; call reset() first")
    found = list(self._read(action))
    most = self._max_calls_per_turn
    parts = bound_attempts(
      found,
      most=most,
      refuse=lambda start: _Part(start=start, error=TOO_MANY.format(most)),
    )
    given = [part.answer for part in parts if part.answer is not None]
    is_final = bool(given) and not any(part.call for part in found)
    texts: list[str] = []
    num_failed = 0
    for part in parts:
      if is_final and part.answer is not None:
        continue
      text, is_failed = await self._respond(part, desk)
      texts.append(text)
      num_failed += is_failed
    if not parts:
      self._num_malformed += 1
      texts, num_failed = [NO_TAG], 1
    if is_final:
      self._answer = given[0]
    return StepResult(
      observations=() if is_final else tuple(map(self._message, texts)),
      terminated=is_final,
      rewards={"turns": 1.0, "tool_errors": float(num_failed)},
      num_tool_calls=len(texts),
      num_tool_errors=num_failed,
      state_key=_state_key(desk),
    )

  async def score(self) -> Mapping[str, float]:
    """The components of `REWARDS` but those of the turns.

    Whether the answer is right depends on the policy's own `<answer>` alone.
    """
    task, desk = self._stage()
    accepted = search_tasks.accepted_of(task)
    is_well_formed = self._num_malformed == 0
    return {
      "success": answers.exact_match(self._answer, accepted),
      "f1": answers.f1_score(self._answer, accepted),
      "f1_or_penalty": search.f1_or_penalty(
        self._answer, accepted, is_well_formed=is_well_formed
      ),
      "format": search.format_penalty(
        self._answer, is_well_formed=is_well_formed
      ),
      "support": search.citation_support(
        search_tasks.evidence_of(task), desk.shown
      ),
      "search_cost": search.search_cost(desk.num_searches),
      "answered": float(self._answer is not None),
    }

  def _read(self, action: str) -> Iterator[_Part]:
    names = search_tags.TAG_NAMES
    if self._style == "hermes":
      names = (search_tags.ANSWER,)
      for attempt in tool_calls.parse_tool_calls(action, style="hermes"):
        yield _Part(start=attempt.start, call=attempt.call, error=attempt.error)
        # A tag in an argument is no answer, nor is one in an unclosed call.
        blank = "\n" * (attempt.end - attempt.start)
        action = action[: attempt.start] + blank + action[attempt.end :]
    for attempt in search_tags.parse_tags(action, names=names):
      yield _tag_part(attempt)

  async def _respond(self, part: _Part, desk: SearchDesk) -> tuple[str, bool]:
    """What an attempt is answered with, and whether it failed."""
    if part.answer is not None:
      self._num_malformed += 1
      return PREMATURE, True
    if part.call is None:
      self._num_malformed += 1
      return f"error: {part.error}", True
    tool = desk.tools.get(part.call.name)
    if tool is None:
      self._num_malformed += 1
      known = ", ".join(desk.tools)
      return f"error: no tool {part.call.name}; use {known}", True
    answer = await run_tool(tool, part.call.arguments)
    self._num_malformed += answer.status not in _WELL_FORMED
    return answer.text, answer.status != RunStatus.OK

  def _message(self, text: str) -> Message:
    if self._style == "tags":
      text = f"<information>\n{text}\n</information>"
    return Message(role="tool", content=text)

  def _usage(self, desk: SearchDesk) -> str:
    if self._style == "tags":
      return _TAG_USAGE
    described = tool_environment.describe_tools(
      tuple(desk.tools.values()), style="hermes"
    )
    return f"{described.content}\n{_ANSWER_USAGE}"

  def _stage(self) -> tuple[Task, SearchDesk]:
    if self._staged is None:
      raise RuntimeError("the environment needs reset() first")
    return self._staged


def read_information(text: str) -> str:
  """What a tool said, without the tags around it."""
  inner = text.removeprefix("<information>\n")
  return inner.removesuffix("\n</information>") if inner != text else text


def _tag_part(attempt: TagAttempt) -> _Part:
  if attempt.status != TagStatus.OK:
    return _Part(start=attempt.start, error=attempt.error)
  if attempt.name == search_tags.ANSWER:
    return _Part(start=attempt.start, answer=attempt.body)
  arguments = {_PARAMETERS[attempt.name]: attempt.body}
  call = ToolCall(name=attempt.name, arguments=arguments)
  return _Part(start=attempt.start, call=call)


def _state_key(desk: SearchDesk) -> str:
  """Names what has been shown, in whatever order."""
  shown = sorted((name, len(text)) for name, text in desk.shown.items())
  return hashlib.sha256(repr(shown).encode()).hexdigest()
