"""What a policy is told about a program that ran."""

from arl_jax.sandbox.sandbox import SandboxResult, Status

NO_OUTPUT = "no output; print what you want to see"
VARIABLES_LOST = "note: all variables of earlier programs are gone"
# Not the policy's mistakes: the program ran, or could not be tried.
HARMLESS = (Status.OK, Status.UNSUPPORTED)


def describe_result(
  result: SandboxResult,
  *,
  timeout_seconds: float,
  memory_mb: int,
  max_chars: int,
  full_traceback: bool = False,
) -> str:
  """Writes what a program printed and how it ended.

  Args:
    result: of the program.
    timeout_seconds: that it had.
    memory_mb: that it had.
    max_chars: that are kept of what was printed, and of an error; what is too
      long loses its middle.
    full_traceback: whether all of a traceback is shown, or its last line.
  """
  printed = cut_middle(result.stdout.rstrip(), max_chars=max_chars)
  trace = result.stderr.strip()
  if not full_traceback and result.status != Status.OK:
    trace = trace.rpartition("\n")[2].strip()
  trace = cut_middle(trace, max_chars=max_chars)
  match result.status:
    case Status.OK:
      ending = trace
    case Status.TIMEOUT:
      ending = f"error: stopped after {timeout_seconds:g} seconds"
    case Status.MEMORY:
      ending = f"error: out of memory, which is {memory_mb} MiB"
    case Status.OUTPUT_LIMIT:
      ending = "error: stopped, because it printed too much"
    case Status.CRASH:
      ending = "error: the interpreter crashed"
    case Status.UNSUPPORTED:
      ending = f"this interpreter cannot run that: {trace}"
    case Status.ERROR:
      ending = f"error: {trace}" if trace else "error: it exited with an error"
  return "\n".join(filter(None, (printed, ending))) or NO_OUTPUT


def cut_middle(text: str, *, max_chars: int) -> str:
  """Returns text whose middle is left out if there is too much of it.

  Raises:
    ValueError: `max_chars` is below 1.
  """
  if max_chars < 1:
    raise ValueError(f"max_chars is {max_chars}; expected 1 or more")
  if len(text) <= max_chars:
    return text
  tail = max_chars // 2
  left_out = len(text) - max_chars
  return (
    f"{text[: max_chars - tail]}\n[{left_out} characters left out]\n"
    f"{text[len(text) - tail :]}"
  )
