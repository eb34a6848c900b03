"""Fixed shapes of the engine, with the totals that it counts."""

import dataclasses

MAX_STOP_IDS = 8


@dataclasses.dataclass(frozen=True, kw_only=True)
class EngineConfig:
  """Fixed shapes of the engine.

  Attributes:
    num_slots: rows that decode at once.
    max_length: longest row, prompt and observations included.
    chunk_size: decode steps between two looks at who waits.
    decode_rows: numbers of rows that decode is compiled for.
    prefill_rows: numbers of rows that prefill is compiled for.
    prefill_lengths: numbers of new tokens that prefill is compiled for.
    kv_lengths: numbers of cells that attention is compiled for.
    on_new_weights: `refresh` drops every key and value, so that each token is
      exact for the weights that sampled it. `keep` lets the sessions that are
      under way go on with their old ones, in their later turns too, until
      another session takes their slot; new sessions never read them.
  """

  num_slots: int = 32
  max_length: int = 512
  chunk_size: int = 8
  decode_rows: tuple[int, ...] = ()
  prefill_rows: tuple[int, ...] = (8, 32)
  prefill_lengths: tuple[int, ...] = (16, 64)
  kv_lengths: tuple[int, ...] = ()
  on_new_weights: str = "refresh"

  def __post_init__(self) -> None:
    if self.on_new_weights not in ("refresh", "keep"):
      raise ValueError(
        f"on_new_weights is {self.on_new_weights!r}; expected 'refresh' or"
        " 'keep'"
      )
    for name in ("num_slots", "max_length", "chunk_size"):
      if getattr(self, name) < 1:
        raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
    for name in ("prefill_rows", "prefill_lengths"):
      if not getattr(self, name):
        raise ValueError(f"{name} is empty; give at least one size")


@dataclasses.dataclass(kw_only=True)
class EngineStats:
  """Running totals since the engine started."""

  sampled_tokens: int = 0
  prefilled_tokens: int = 0
  shared_tokens: int = 0
  decode_steps: int = 0
  weight_changes: int = 0
