"""One episode's view of the airline database, copied where it is touched."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any


class Overlay:
  """A dictionary over a shared one, which it never changes.

  A record is copied when it is first read by its key, since tools change the
  records that they read. It costs microseconds, where a copy of the whole
  database takes most of a second.

  Args:
    base: shared records by key.
    copy: makes a copy of a record that shares nothing that can change.
  """

  def __init__(self, base: Mapping[str, Any], copy: Callable[[Any], Any]):
    self._base, self._copy = base, copy
    self._own: dict[str, Any] = {}

  def __contains__(self, key: object) -> bool:
    return key in self._own or key in self._base

  def __getitem__(self, key: str) -> Any:
    if key not in self._own:
      self._own[key] = self._copy(self._base[key])
    return self._own[key]

  def __setitem__(self, key: str, record: Any) -> None:
    self._own[key] = record

  def __len__(self) -> int:
    return len(self._base) + sum(key not in self._base for key in self._own)

  def __iter__(self) -> Iterator[str]:
    yield from self._base
    yield from [key for key in self._own if key not in self._base]

  def values(self) -> Iterator[Any]:
    """Yields all records, shared ones without a copy: for reading only."""
    for key in self:
      yield self._own[key] if key in self._own else self._base[key]

  def touched(self) -> Iterator[tuple[str, Any, Any]]:
    """Yields key, own record and shared record, None if there is none."""
    for key, record in self._own.items():
      yield key, record, self._base.get(key)


class AirlineState:
  """The database of one episode, in the form that the tools take.

  Args:
    database: what all episodes share.

  Attributes:
    flights: by number; their `dates` are an `Overlay`, too.
    users: by id.
    reservations: by id.
  """

  def __init__(self, database: Any):
    self.flights = Overlay(database.flights, _copy_flight)
    self.users = Overlay(database.users, _copy_record)
    self.reservations = Overlay(database.reservations, _copy_record)

  def changes(self) -> dict[str, Any]:
    """Records that differ from the shared ones, as JSON values by name.

    Two episodes over one database are in the same state if and only if their
    changes are equal.
    """
    changed: dict[str, Any] = {}
    for name, overlay in (
      ("user", self.users),
      ("reservation", self.reservations),
    ):
      changed |= _differences(name, overlay)
    for number, flight, _ in self.flights.touched():
      changed |= _differences(f"flight {number}", flight.dates)
    return changed


def _differences(name: str, overlay: Overlay) -> dict[str, Any]:
  return {
    f"{name} {key}": own.model_dump(mode="json")
    for key, own, shared in overlay.touched()
    if own != shared
  }


def _copy_record(record: Any) -> Any:
  return record.model_copy(deep=True)


def _copy_flight(flight: Any) -> Any:
  """Copies days of a flight only as they are read; the rest is texts."""
  dates = Overlay(flight.dates, _copy_record)
  return flight.model_copy(update={"dates": dates})
