"""Tool calls as text, in two styles.

Hermes, one JSON object between tags:

    <tool_call>
    {"name": "check", "arguments": {"flight": "KL215"}}
    </tool_call>

Compact, one line, arguments in the order of the tool's parameters:

    check KL215
    search BOS | LAX | May 12 | economy

Every attempt at a call is reported with a status of its own, so that one bad
call neither hides nor spoils a good one beside it.
"""

from collections.abc import Mapping, Sequence
import dataclasses
import enum
import json
import math
import re
from typing import Any, Literal

from arl_jax.episode import ToolCall

Style = Literal["hermes", "compact"]
STYLES: tuple[Style, ...] = ("hermes", "compact")

_OPEN = "<tool_call>"
_CLOSE = "</tool_call>"
_TAG = re.compile(f"{_OPEN}|{_CLOSE}")
_SPACE = re.compile(r"[ \t\r\n]*")
_SEPARATOR = "|"


class CallStatus(enum.StrEnum):
  """What became of one attempt at a tool call."""

  OK = "ok"
  MALFORMED_JSON = "malformed_json"
  NOT_AN_OBJECT = "not_an_object"
  MISSING_NAME = "missing_name"
  BAD_ARGUMENTS = "bad_arguments"
  UNCLOSED = "unclosed"  # an opening tag without its closing tag
  UNOPENED = "unopened"  # a closing tag without its opening tag
  UNKNOWN_NAME = "unknown_name"  # compact only: the order cannot be known


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class ToolCallAttempt:
  """One attempt at a tool call.

  Attributes:
    status: ok, or what is wrong with it.
    start: first character of the attempt in the text.
    end: one past its last character.
    call: the call if the status is ok, else None.
    error: what is wrong, in words for the policy; empty if the status is ok.
  """

  status: CallStatus
  start: int
  end: int
  call: ToolCall | None = None
  error: str = ""


def parse_tool_calls(
  text: str,
  *,
  style: Style,
  parameters: Mapping[str, Sequence[str]] | None = None,
) -> tuple[ToolCallAttempt, ...]:
  """Finds every attempt at a tool call, in the order of the text.

  Args:
    text: an action of the policy, without its stop token.
    style: how calls are written.
    parameters: compact style only, the parameter names of each tool in order.

  Returns:
    The attempts; their spans do not overlap. None at all means that the text
    is a plain answer.

  Raises:
    ValueError: unknown style, or compact style without `parameters`.
  """
  if style == "hermes":
    return tuple(_parse_hermes(text))
  if style == "compact":
    return tuple(_parse_compact(text, _require_parameters(parameters)))
  raise ValueError(f"style is {style!r}; expected one of {STYLES}")


def render_tool_call(
  call: ToolCall,
  *,
  style: Style,
  parameters: Mapping[str, Sequence[str]] | None = None,
) -> str:
  """Writes a call so that `parse_tool_calls` reads the same call back.

  Compact style writes every argument as text.

  Raises:
    ValueError: the style cannot express the call.
  """
  if style == "hermes":
    body = {"name": call.name, "arguments": dict(call.arguments)}
    text = json.dumps(body, ensure_ascii=False, allow_nan=False)
    return f"{_OPEN}\n{text}\n{_CLOSE}"
  if style == "compact":
    return _render_compact(call, _require_parameters(parameters))
  raise ValueError(f"style is {style!r}; expected one of {STYLES}")


def _require_parameters(
  parameters: Mapping[str, Sequence[str]] | None,
) -> Mapping[str, Sequence[str]]:
  if parameters is None:
    raise ValueError(
      "compact style needs `parameters`: the parameter names of each tool"
    )
  return parameters


def _parse_hermes(text: str) -> list[ToolCallAttempt]:
  attempts = []
  tag = _TAG.search(text)
  while tag is not None:
    if tag.group() == _CLOSE:
      attempt = ToolCallAttempt(
        status=CallStatus.UNOPENED,
        start=tag.start(),
        end=tag.end(),
        error=f"{_CLOSE} without {_OPEN}",
      )
    else:
      attempt = _parse_tagged(text, tag.start())
    attempts.append(attempt)
    tag = _TAG.search(text, attempt.end)
  return attempts


def _parse_tagged(text: str, start: int) -> ToolCallAttempt:
  """Reads the attempt whose opening tag is at `start`."""
  body = _skip_space(text, start + len(_OPEN))
  try:
    value, json_end = _STRICT_JSON.raw_decode(text, body)
    _reject_surrogates(text[body:json_end], value)
  except (ValueError, RecursionError) as error:
    return _unreadable(text, start, f"invalid JSON: {_reason(error)}")
  end = _skip_space(text, json_end)
  # Searching for the closing tag only after the object ends lets a string
  # argument hold the tag itself.
  if not text.startswith(_CLOSE, end):
    return _unreadable(text, start, "text after the JSON object", json_end)
  status, call, problem = _read_call(value)
  return ToolCallAttempt(
    status=status,
    start=start,
    end=end + len(_CLOSE),
    call=call,
    error=problem,
  )


def _unreadable(
  text: str, start: int, problem: str, search_from: int | None = None
) -> ToolCallAttempt:
  """An attempt that holds no readable object, up to the next tag."""
  tag = _TAG.search(text, search_from or start + len(_OPEN))
  if tag is not None and tag.group() == _CLOSE:
    return ToolCallAttempt(
      status=CallStatus.MALFORMED_JSON,
      start=start,
      end=tag.end(),
      error=problem,
    )
  return ToolCallAttempt(
    status=CallStatus.UNCLOSED,
    start=start,
    end=len(text) if tag is None else tag.start(),
    error=f"{_OPEN} without {_CLOSE}",
  )


def _read_call(value: Any) -> tuple[CallStatus, ToolCall | None, str]:
  if not isinstance(value, dict):
    return CallStatus.NOT_AN_OBJECT, None, "the call is not a JSON object"
  name = value.get("name")
  if not isinstance(name, str) or not name:
    return CallStatus.MISSING_NAME, None, 'the call has no "name"'
  arguments = value.get("arguments")
  if not isinstance(arguments, dict):
    return CallStatus.BAD_ARGUMENTS, None, '"arguments" is not an object'
  return CallStatus.OK, ToolCall(name=name, arguments=arguments), ""


def _skip_space(text: str, start: int) -> int:
  match = _SPACE.match(text, start)
  return start if match is None else match.end()


def _reason(error: Exception) -> str:
  if isinstance(error, json.JSONDecodeError):
    return error.msg
  return (
    "nested too deeply" if isinstance(error, RecursionError) else str(error)
  )


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
  result = dict(pairs)
  if len(result) < len(pairs):
    raise ValueError("a key appears twice")
  return result


def _reject_constant(text: str) -> Any:
  raise ValueError(f"{text} is not JSON")


def _finite_float(text: str) -> float:
  value = float(text)
  if not math.isfinite(value):
    raise ValueError("a number is too large")
  return value


def _reject_surrogates(source: str, value: Any) -> None:
  """Half a surrogate pair alone could never be encoded again."""
  if "\\u" in source:
    json.dumps(value, ensure_ascii=False).encode("utf-8")


_STRICT_JSON = json.JSONDecoder(
  object_pairs_hook=_unique_keys,
  parse_constant=_reject_constant,
  parse_float=_finite_float,
)


def _parse_compact(
  text: str, parameters: Mapping[str, Sequence[str]]
) -> list[ToolCallAttempt]:
  attempts = []
  for match in re.finditer(r"[^\n]+", text):
    line = match.group().strip()
    if not line:
      continue
    name, _, rest = line.partition(" ")
    if name not in parameters and _SEPARATOR not in line:
      continue
    start = match.start() + match.group().index(line)
    status, call, problem = _read_line(name, rest.strip(), parameters)
    attempts.append(
      ToolCallAttempt(
        status=status,
        start=start,
        end=start + len(line),
        call=call,
        error=problem,
      )
    )
  return attempts


def _read_line(
  name: str, rest: str, parameters: Mapping[str, Sequence[str]]
) -> tuple[CallStatus, ToolCall | None, str]:
  if name not in parameters:
    return CallStatus.UNKNOWN_NAME, None, f"there is no tool {name}"
  order = parameters[name]
  values = [part.strip() for part in rest.split(_SEPARATOR)] if rest else []
  if len(values) > len(order):
    problem = f"{name} takes {len(order)} arguments, found {len(values)}"
    return CallStatus.BAD_ARGUMENTS, None, problem
  if not all(values):
    return CallStatus.BAD_ARGUMENTS, None, f"{name} has an empty argument"
  arguments = dict(zip(order, values, strict=False))
  return CallStatus.OK, ToolCall(name=name, arguments=arguments), ""


def _render_compact(
  call: ToolCall, parameters: Mapping[str, Sequence[str]]
) -> str:
  if call.name not in parameters:
    raise ValueError(f"call.name is {call.name!r}; no such tool")
  order = parameters[call.name][: len(call.arguments)]
  if set(order) != set(call.arguments):
    raise ValueError(
      f"{call.name} has arguments {sorted(call.arguments)}; compact style can"
      f" leave out only the last of {list(parameters[call.name])}"
    )
  values = [str(call.arguments[name]) for name in order]
  for value in values:
    if not value or value != value.strip() or re.search(r"[|\n]", value):
      raise ValueError(f"compact style cannot write the argument {value!r}")
  return " ".join([call.name, " | ".join(values)]).rstrip()
