"""The words of flight booking: pools of values, the request, the split."""

import dataclasses
import re

CABINS = ("economy", "business")
KINDS = ("cheapest", "earliest", "before")
MONTHS = (
  "Jan",
  "Feb",
  "Mar",
  "Apr",
  "May",
  "Jun",
  "Jul",
  "Aug",
  "Sep",
  "Oct",
  "Nov",
  "Dec",
)
# The pools are small so that a small vocabulary can hold every value as one
# token: copying a flight number then takes one step instead of five.
AIRPORTS = ("AMS", "BOS", "CDG", "JFK", "LAX", "LIS", "ORD", "SEA")
FLIGHT_NUMBERS = tuple(
  f"{carrier}{number}"
  for carrier in ("AC", "AF", "BA", "DL", "JL", "KL", "LH", "UA")
  for number in (104, 215, 327, 438, 549, 653, 761, 872)
)
TIMES = tuple(
  f"{hour:02d}:{'40' if hour % 2 else '10'}" for hour in range(6, 21)
)
DEADLINES = ("09:00", "10:00", "11:00")
PRICES = tuple(range(120, 700, 20))
DATES = tuple(f"May {day}" for day in range(11, 21))
FIRST_NAMES = ("Ana", "Ben", "Eva", "Ida", "Leo", "Mia", "Noa", "Tom")
SIMILAR_LAST_NAMES = (
  ("Silva", "Silvas"),
  ("Olsen", "Olson"),
  ("Meyer", "Meier"),
  ("Braun", "Brown"),
)
LAST_NAMES = tuple(name for pair in SIMILAR_LAST_NAMES for name in pair)

NO_FLIGHT_ANSWER = "No flight fits."
BOOKED_ANSWER = "Booked."

_DATE = rf"(?:{'|'.join(MONTHS)}) \d{{1,2}}"
_DATE_PATTERN = re.compile(_DATE)
_LONGEST_FIRST = sorted(LAST_NAMES, key=len, reverse=True)
# Splits text before BPE. What it matches is a value and stays whole; what lies
# between, as `<tool_call>\n{"name": "search", "arguments": {"from": "`, can
# grow into one token. A time, date or price in a row
# takes the space before it.
FLIGHT_SPLIT_PATTERN = "|".join(
  (
    r"[A-Z]{2}\d{3}",
    r"(?<=\d) \d\d:\d\d",
    r"\d\d:\d\d",
    rf"(?<=\d) {_DATE}",
    _DATE,
    r" \$\d+\n?",
    r"\b[A-Z]{3}\b",
    rf"\b(?:{'|'.join(FIRST_NAMES)})\b",
    rf" (?:{'|'.join(_LONGEST_FIRST)})\b",
    rf"\b(?:{'|'.join(CABINS)}|cheapest|earliest|price|time)\b",
    r"\d+",
  )
)

_REQUEST = re.compile(
  r"Book the (?P<rank>cheapest|earliest) (?P<cabin>\w+) flight"
  r" (?P<origin>\w+) to (?P<destination>\w+)"
  rf" on (?P<dates>{_DATE}(?: or {_DATE})*)"
  r"(?: before (?P<before>\d\d:\d\d))? for (?P<passenger>[^.]+)\."
)
_NO_FLIGHT = re.compile(
  r"\bno (?:\w+ ){0,3}flights?\b|\bnothing (?:fits|is available)\b"
  r"|\bnone (?:fits?|(?:is|are) available)\b",
  re.IGNORECASE,
)
_ROW = re.compile(
  rf"^(?P<number>\w+)(?: {_DATE})?(?: \d\d:\d\d)? \$\d+$", re.MULTILINE
)


@dataclasses.dataclass(frozen=True, kw_only=True, slots=True)
class Request:
  """What a traveller asks for.

  Attributes:
    kind: `cheapest`, `earliest`, or `before` (the cheapest before a time).
    cabin: economy or business.
    origin: airport code.
    destination: airport code.
    dates: any of these days will do.
    before: the flight leaves earlier than this `hh:mm`; kind `before` only.
    passenger: full name.
  """

  kind: str
  cabin: str
  origin: str
  destination: str
  dates: tuple[str, ...]
  passenger: str
  before: str | None = None

  @property
  def order(self) -> str:
    """What the best flight is the first by: `price` or `time`."""
    return "time" if self.kind == "earliest" else "price"


def write_request(request: Request) -> str:
  """The request as one sentence."""
  rank = "earliest" if request.kind == "earliest" else "cheapest"
  before = f" before {request.before}" if request.before else ""
  return (
    f"Book the {rank} {request.cabin} flight"
    f" {request.origin} to {request.destination}"
    f" on {' or '.join(request.dates)}{before} for {request.passenger}."
  )


def read_request(sentence: str) -> Request:
  """Reads back what `write_request` wrote.

  Raises:
    ValueError: the sentence has another form.
  """
  match = _REQUEST.fullmatch(sentence)
  if match is None:
    raise ValueError(f"cannot read the request {sentence!r}")
  rank, before = match["rank"], match["before"]
  return Request(
    kind="before" if before else rank,
    cabin=match["cabin"],
    origin=match["origin"],
    destination=match["destination"],
    dates=tuple(match["dates"].split(" or ")),
    passenger=match["passenger"],
    before=before,
  )


def is_date(text: str) -> bool:
  """True for a date as `May 12`."""
  return _DATE_PATTERN.fullmatch(text) is not None


def date_key(date: str) -> tuple[int, int]:
  """Sorts dates as `May 12` by the calendar."""
  month, day = date.split(" ")
  return MONTHS.index(month), int(day)


def write_row(
  number: str, price: int, *, date: str | None, time: str | None
) -> str:
  """One line of a list of flights, with its line end."""
  parts = (number, date, time, f"${price}")
  return " ".join(part for part in parts if part) + "\n"


def read_rows(observation: str) -> list[str]:
  """The flight numbers of the rows in an observation, in their order."""
  return [match["number"] for match in _ROW.finditer(observation)]


def says_no_flight(answer: str) -> bool:
  """True if a final answer says that no flight fits."""
  return _NO_FLIGHT.search(answer) is not None
