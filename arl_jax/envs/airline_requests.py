"""Simple requests of customers, as one sentence and back.

Everything that a right call needs is in the sentence or in what a tool shows,
to be copied.
"""

import dataclasses
import re
from typing import Any, Literal

Kind = Literal["lookup", "cancel", "cancel_if", "bags", "book"]
# What is asked or tested about a reservation, as the sentence calls it.
FIELDS = ("cabin", "insurance", "trip", "first flight", "first date", "payment")
CONDITIONS = ("cabin", "insurance")
DONE = "Done."
DECLINED = "Not cancelled."

_ID = r"(?P<user_id>\w+): "
_RESERVATION = r"(?P<reservation_id>\w+)"
_FORMS: dict[Kind, str] = {
  "lookup": rf"what is the (?P<field>[\w ]+) of reservation {_RESERVATION}\?",
  "cancel": rf"cancel reservation {_RESERVATION}\.",
  "cancel_if": (
    rf"cancel reservation {_RESERVATION} if its (?P<field>\w+) is"
    r" (?P<value>\w+)\."
  ),
  "bags": (
    rf"reservation {_RESERVATION} gets (?P<bags>\d+) bags,"
    r" (?P<paid_bags>\d+) paid with (?P<payment_id>\w+)\."
  ),
  "book": (
    r"book (?P<flight>\w+) (?P<origin>\w+) to (?P<destination>\w+) on"
    r" (?P<date>[\d-]+), (?P<cabin>\w+), for (?P<first_name>\w+)"
    r" (?P<last_name>\w+) born (?P<dob>[\d-]+), paid with"
    r" (?P<payment_id>\w+)\."
  ),
}


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Request:
  """What a customer asks for; fields that its kind has not are empty.

  Attributes:
    kind: `lookup` asks for a field of a reservation; `cancel` cancels one, and
      `cancel_if` only if a field has a value; `bags` sets its bags; `book`
      books a one-way flight for one passenger without bags or insurance.
    user_id: of the customer.
    reservation_id: of all kinds but `book`.
    field: one of `FIELDS`.
    value: what the field has to be.
    bags: in total.
    paid_bags: those of them that cost.
    payment_id: what is paid with.
    flight: its number.
    origin: airport.
    destination: airport.
    date: of the flight.
    cabin: of the flight.
    first_name: of the passenger.
    last_name: of the passenger.
    dob: date of birth of the passenger.
  """

  kind: Kind
  user_id: str
  reservation_id: str = ""
  field: str = ""
  value: str = ""
  bags: int = 0
  paid_bags: int = 0
  payment_id: str = ""
  flight: str = ""
  origin: str = ""
  destination: str = ""
  date: str = ""
  cabin: str = ""
  first_name: str = ""
  last_name: str = ""
  dob: str = ""

  def write(self) -> str:
    """The sentence that the policy reads."""
    return f"{self.user_id}: {self._wish()}"

  def _wish(self) -> str:
    reservation = f"reservation {self.reservation_id}"
    match self.kind:
      case "lookup":
        return f"what is the {self.field} of {reservation}?"
      case "cancel":
        return f"cancel {reservation}."
      case "cancel_if":
        return f"cancel {reservation} if its {self.field} is {self.value}."
      case "bags":
        return (
          f"{reservation} gets {self.bags} bags, {self.paid_bags} paid with"
          f" {self.payment_id}."
        )
      case "book":
        return (
          f"book {self.flight} {self.origin} to {self.destination} on"
          f" {self.date}, {self.cabin}, for {self.first_name} {self.last_name}"
          f" born {self.dob}, paid with {self.payment_id}."
        )


def read_request(text: str) -> Request:
  """Reads a sentence of `Request.write` back.

  Raises:
    ValueError: it is none.
  """
  for kind, form in _FORMS.items():
    found = re.fullmatch(_ID + form, text)
    if found:
      fields: dict[str, Any] = {
        name: int(value) if name in ("bags", "paid_bags") else value
        for name, value in found.groupdict().items()
      }
      return Request(kind=kind, **fields)
  raise ValueError(
    f"{text!r} is no request; expected a sentence as Request.write() makes it"
  )
