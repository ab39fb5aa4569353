"""Tools for dates, times and time zones.

A local time that a zone skips or has twice is never guessed: the model is told what it can ask for instead.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from difflib import get_close_matches
from enum import Enum
from typing import Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from toolcrib import ToolError, tool

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

Twice = Literal["earlier", "later"]


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment as the clocks of one zone show it; `time` is in ISO 8601 with the offset from UTC."""

    time: str
    zone: str
    abbreviation: str
    weekday: str


class Days(Enum):
    """Which days count."""

    ALL = "all"
    MONDAY_TO_FRIDAY = "monday_to_friday"


@tool(title="Current time", read_only=True, idempotent=True, open_world=False, examples=[{"zone": "Europe/Paris"}])
def now(zone: str = "UTC") -> Moment:
    """Tell the current date and time in a time zone.

    Args:
        zone: An IANA name, such as Europe/Paris.
    """
    return _moment(datetime.now(UTC).replace(microsecond=0), zone)


@tool(title="Convert a time", read_only=True, idempotent=True, open_world=False)
def convert_time(time: datetime, to_zone: str, from_zone: str | None = None, if_twice: Twice | None = None) -> Moment:
    """Tell what the clocks of another time zone show at a given time.

    Args:
        time: In ISO 8601: with an offset (2025-06-01T09:30:00+02:00), or without one and with from_zone.
        to_zone: The IANA name of the zone to convert to, such as Asia/Tokyo.
        from_zone: The IANA name of the zone that the time is in; only for a time without an offset.
        if_twice: Which one is meant where the clocks of from_zone show that time twice, as when they are put back.
    """
    if time.tzinfo is None:
        if from_zone is None:
            raise ToolError(
                f"{time.isoformat()} is a local time somewhere. Say where with from_zone, or give it an offset.",
                "invalid_arguments",
            )
        time = _local(time, from_zone, if_twice)
    elif from_zone is not None:
        raise ToolError(f"{time.isoformat()} has an offset already. Leave out from_zone.", "invalid_arguments")
    return _moment(time, to_zone)


@tool(title="Add a duration", read_only=True, idempotent=True, open_world=False)
def add_duration(start: datetime, duration: timedelta, zone: str = "UTC", if_twice: Twice | None = None) -> Moment:
    """Tell the time when a duration has passed. It is elapsed time: clocks put forward or back meanwhile count.

    Args:
        start: In ISO 8601, with an offset or without.
        duration: In ISO 8601, such as PT90M, P2DT4H or -P1W. A day has 24 hours, a month 30 days, a year 365.
        zone: The IANA name of the zone to tell the answer in, and that of start where it has no offset.
        if_twice: Which one is meant where the clocks of the zone show the start twice.
    """
    start_at = _local(start, zone, if_twice) if start.tzinfo is None else start
    try:
        end_at = start_at.astimezone(UTC) + duration
    except OverflowError:
        raise _out_of_calendar() from None
    return _moment(end_at, zone)


@tool(title="Days between dates", read_only=True, idempotent=True, open_world=False)
def days_between(start: date, end: date, count: Days = Days.ALL) -> int:
    """Count the days from one date to another: the start counts, the end does not. Negative where the end is earlier.

    Args:
        start: The first day, in ISO 8601: 2025-06-01.
        end: The day up to which to count.
        count: All days, or only those from Monday to Friday. Public holidays are not known here.
    """
    if count is Days.ALL:
        return (end - start).days
    return _weekdays_before(end) - _weekdays_before(start)


def _weekdays_before(day: date) -> int:
    """Count the days from Monday to Friday that lie before *day*, from 0001-01-01, which is a Monday."""
    weeks, rest = divmod(day.toordinal() - 1, 7)
    return weeks * 5 + min(rest, 5)


def _moment(time: datetime, zone: str) -> Moment:
    try:
        local = time.astimezone(_zone(zone))
    except OverflowError:
        raise _out_of_calendar() from None
    # As text of our own: some offsets of old days have seconds, and not every JSON encoder keeps them.
    return Moment(local.isoformat(), zone, local.tzname() or "", _WEEKDAYS[local.weekday()])


def _local(time: datetime, zone: str, if_twice: Twice | None) -> datetime:
    """Return *time* as the clocks of *zone* show it. Raises ToolError for one that they never show, or show twice."""
    clock = _zone(zone)
    first, second = time.replace(tzinfo=clock, fold=0), time.replace(tzinfo=clock, fold=1)
    try:
        if first.utcoffset() == second.utcoffset():
            return first
        moments = [moment.astimezone(UTC).astimezone(clock) for moment in (second, first)]
    except OverflowError:
        raise _out_of_calendar() from None
    if moments[0].replace(tzinfo=None) != time:
        before, after = (moment.isoformat() for moment in moments)
        raise ToolError(
            f"The clocks of {zone} never show {time.isoformat()}: they are put forward over it. "
            f"Ask for {before} or {after}.",
            "invalid_arguments",
        )
    if if_twice is None:
        raise ToolError(
            f"The clocks of {zone} show {time.isoformat()} twice: {first.isoformat()}, then {second.isoformat()}. "
            'Say which with if_twice: "earlier" or "later".',
            "invalid_arguments",
        )
    return first if if_twice == "earlier" else second


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC  # known to Python itself, also where there is no time zone data
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        names = available_timezones()
    if not names:
        raise ToolError(
            "This machine has no time zone data, so only UTC is known. Install it: pip install tzdata.",
            "unavailable",
            retry="never",
        )
    near = _nearest(name, names)
    hint = f"The nearest names are: {', '.join(near)}." if near else "Names are like Europe/Paris, Asia/Tokyo or UTC."
    raise ToolError(
        f"There is no time zone named {name[:60]!r}. {hint}", "invalid_arguments", details={"nearest": near}
    )


def _nearest(name: str, known: set[str]) -> list[str]:
    """Return the three of *known* that *name* is most like, as a whole or by the city alone."""
    by_spelling: dict[str, str] = {}
    for zone in sorted(known):
        by_spelling.setdefault(zone.casefold().rpartition("/")[2], zone)
        by_spelling[zone.casefold()] = zone
    matches = get_close_matches("_".join(name[:60].casefold().split()), by_spelling, n=6)
    return list(dict.fromkeys(by_spelling[match] for match in matches))[:3]


def _out_of_calendar() -> ToolError:
    return ToolError("The answer lies outside the years 1 to 9999. Ask for less.", "invalid_arguments")
