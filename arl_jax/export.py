"""Writes a trained policy: `python -m arl_jax.export --config=F --workdir=W`.

The folder `W/hf` then holds config.json, safetensors and the tokenizer, as
transformers and inference servers read them.
"""

import pathlib

from arl_jax import command_line
from arl_jax import config as config_lib


def export_checkpoint(config: config_lib.Section, workdir: str) -> pathlib.Path:
  """Exports the newest checkpoint of a run.

  Args:
    config: the run's configuration.
    workdir: the run's folder.

  Returns:
    The folder that was written.

  Raises:
    ValueError: if there is no checkpoint, or it is not of this configuration.
  """
  import jax

  from arl_jax.models.export import export_hf
  from arl_jax.models.hf_config import fitting_family
  from arl_jax.train import open_checkpoint

  with open_checkpoint(config, workdir) as (parts, state, _):
    folder = pathlib.Path(workdir) / "hf"
    export_hf(
      folder,
      parts.policy.model,
      jax.device_get(state.params),
      family=fitting_family(parts.policy.model),
      tokenizer=parts.policy.tokenizer,
    )
  return folder


def _export(arguments: command_line.Arguments) -> None:
  command_line.connect(arguments)
  print(export_checkpoint(arguments.config, arguments.workdir))


def main() -> None:
  """Runs the command."""
  command_line.run(_export, description=__doc__ or "")


if __name__ == "__main__":
  main()
