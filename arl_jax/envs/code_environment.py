"""Reasoning with a code interpreter, judged on the answer in its tag."""

from collections.abc import Mapping
from typing import Protocol

from arl_jax.episode import Task
from arl_jax.sandbox.sandbox import Sandbox


class Judge(Protocol):
  """Says what a submission is worth."""

  async def judge(
    self, task: Task, submission: str, sandbox: Sandbox
  ) -> Mapping[str, float]:
    """Judges what was submitted.

    Args:
      task: with what is needed to judge in `hidden`.
      submission: the text between the answer's tags, never empty.
      sandbox: runs what has to be run.

    Returns:
      Components before weights, among them `success`, which is 0 or 1.
    """
    ...
