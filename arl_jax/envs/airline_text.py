"""Records of the airline in a few labelled lines, for policies with short rows.

A reservation of 700 characters of JSON takes about 300 this way:

    reservation JMO1MG of anya_garcia_5901
    one_way MSP EWR economy insurance no
    flight HAT300 2024-05-19 MSP EWR 172
    passenger Anya Garcia 1991-02-03
    payment credit_card_5723 172
    bags 2 paid 0
    created 2024-05-10T07:12:05

What a policy needs is there to be copied.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

NOTHING = "none"


def write_brief(name: str, result: Any) -> str:
  """Writes what a tool returned.

  Args:
    name: of the tool.
    result: a text, a record, or a list of them.
  """
  if isinstance(result, str):
    return result
  if name in _CHANGED:
    return f"done {result.reservation_id}"
  return _WRITERS[name](result)


def write_reservation(reservation: Any) -> str:
  """Writes a reservation; a line for each flight, passenger and payment."""
  return "\n".join(_reservation_lines(reservation))


def write_user(user: Any) -> str:
  """Writes a user with what they pay with and what they have booked."""
  return "\n".join(_user_lines(user))


def write_flights(flights: Iterable[Any]) -> str:
  """Writes a flight a line, with price and seats of each cabin."""
  return "\n".join(map(_flight_line, flights)) or NOTHING


def _reservation_lines(reservation: Any) -> Iterator[str]:
  yield f"reservation {reservation.reservation_id} of {reservation.user_id}"
  if reservation.status:
    yield f"status {reservation.status}"
  yield (
    f"{reservation.flight_type} {reservation.origin} {reservation.destination}"
    f" {reservation.cabin} insurance {reservation.insurance}"
  )
  for flight in reservation.flights:
    yield (
      f"flight {flight.flight_number} {flight.date} {flight.origin}"
      f" {flight.destination} {flight.price}"
    )
  yield from map(_passenger_line, reservation.passengers)
  for payment in reservation.payment_history:
    yield f"payment {payment.payment_id} {payment.amount}"
  yield (
    f"bags {reservation.total_baggages} paid {reservation.nonfree_baggages}"
  )
  yield f"created {reservation.created_at}"


def _user_lines(user: Any) -> Iterator[str]:
  name = f"{user.name.first_name} {user.name.last_name}"
  yield f"user {user.user_id} {name} {user.dob} {user.membership}"
  for method in user.payment_methods.values():
    about = getattr(method, "last_four", None) or f"{method.amount:g} left"
    yield f"payment {method.id} {about}"
  yield from map(_passenger_line, user.saved_passengers)
  yield f"reservations {' '.join(user.reservations) or NOTHING}"


def _passenger_line(passenger: Any) -> str:
  return (
    f"passenger {passenger.first_name} {passenger.last_name} {passenger.dob}"
  )


def _flight_line(flight: Any) -> str:
  start = _minutes(flight.scheduled_departure_time_est)
  end = _minutes(flight.scheduled_arrival_time_est)
  cabins = " ".join(
    f"{cabin} {flight.prices[cabin]} x{flight.available_seats[cabin]}"
    for cabin in flight.prices
  )
  date = f"{flight.date} " if flight.date else ""
  return (
    f"{flight.flight_number} {flight.origin} {flight.destination}"
    f" {date}{start} {end} {cabins}"
  )


def _minutes(time: str) -> str:
  """A time without its seconds; `+1`, the next day, stays."""
  return f"{time[:5]}{time[8:]}"


def _write_connections(pairs: Sequence[Sequence[Any]]) -> str:
  lines = [write_flights(pair).replace("\n", " then ") for pair in pairs]
  return "\n".join(lines) or NOTHING


def _write_airports(airports: Iterable[Any]) -> str:
  return "\n".join(f"{airport.iata} {airport.city}" for airport in airports)


_CHANGED = (
  "book_reservation",
  "cancel_reservation",
  "update_reservation_baggages",
  "update_reservation_flights",
  "update_reservation_passengers",
)
_WRITERS: Mapping[str, Callable[[Any], str]] = {
  "get_reservation_details": write_reservation,
  "get_user_details": write_user,
  "list_all_airports": _write_airports,
  "search_direct_flight": write_flights,
  "search_onestop_flight": _write_connections,
}
