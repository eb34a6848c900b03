"""Trains an agent: `python -m arl_jax.main --config=FILE --workdir=FOLDER`."""

from arl_jax import command_line


def _train(arguments: command_line.Arguments) -> None:
  command_line.connect(arguments)
  # Imported here: --help and a typo need not wait for the learner.
  from arl_jax import train

  train.train(arguments.config, arguments.workdir)


def main() -> None:
  """Runs the command."""
  command_line.run(_train, description=__doc__ or "")


if __name__ == "__main__":
  main()
