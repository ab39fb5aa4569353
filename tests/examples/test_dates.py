"""The demo of the wheel: dates and time zones."""

import sys
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Result, Workbench


@pytest.fixture
def bench() -> Workbench:
    return Workbench(["toolcrib.demo"])


@pytest.fixture
def no_time_zones(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without time zone data, neither the system's nor the package's."""
    monkeypatch.setitem(sys.modules, "tzdata", None)
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath()
    zoneinfo.ZoneInfo.clear_cache()


def failure(result: Result[Any]) -> tuple[str, str]:
    assert result.error is not None, result.text
    return result.error.code, result.error.message


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("Berlin", "Europe/Berlin"),
        ("europe/paris", "Europe/Paris"),
        ("New York", "America/New_York"),
        ("Europe/Londn", "Europe/London"),
    ],
)
async def test_an_unknown_zone_is_refused_with_the_nearest_names(bench: Workbench, name: str, nearest: str) -> None:
    result = await bench.call("now", {"zone": name})
    code, message = failure(result)
    assert code == "invalid_arguments"
    assert message.startswith(f"There is no time zone named '{name}'. The nearest names are: {nearest}")
    assert result.error is not None
    assert result.error.details["nearest"][0] == nearest


async def test_without_time_zone_data_the_error_names_the_package_and_utc_still_works(
    bench: Workbench, no_time_zones: None
) -> None:
    assert failure(await bench.call("now", {"zone": "Europe/Paris"})) == (
        "unavailable",
        "This machine has no time zone data, so only UTC is known. Install it: pip install tzdata.",
    )
    assert (await bench.call("now")).unwrap().zone == "UTC"


@pytest.mark.parametrize(
    ("arguments", "time"),
    [
        ({"time": "2025-06-01T09:30:00+02:00", "to_zone": "Asia/Tokyo"}, "2025-06-01T16:30:00+09:00"),
        ({"time": "2025-06-01T09:30:00", "from_zone": "Europe/Rome", "to_zone": "UTC"}, "2025-06-01T07:30:00+00:00"),
        # The day before the change and the day after it have other offsets.
        (
            {"time": "2025-03-29T12:00:00", "from_zone": "Europe/Berlin", "to_zone": "UTC"},
            "2025-03-29T11:00:00+00:00",
        ),
        (
            {"time": "2025-03-30T12:00:00", "from_zone": "Europe/Berlin", "to_zone": "UTC"},
            "2025-03-30T10:00:00+00:00",
        ),
        # Local mean time: an offset with seconds is not rounded.
        ({"time": "1800-01-01T00:00:00Z", "to_zone": "America/New_York"}, "1799-12-31T19:03:58-04:56:02"),
    ],
)
async def test_a_time_is_converted(bench: Workbench, arguments: dict[str, str], time: str) -> None:
    assert (await bench.call("convert_time", arguments)).unwrap().time == time


async def test_a_local_time_that_clocks_skip_is_refused_with_the_times_around_it(bench: Workbench) -> None:
    arguments = {"time": "2024-03-31T02:30:00", "from_zone": "Europe/Berlin", "to_zone": "UTC"}
    for more in ({}, {"if_twice": "later"}):
        assert failure(await bench.call("convert_time", arguments | more)) == (
            "invalid_arguments",
            "The clocks of Europe/Berlin never show 2024-03-31T02:30:00: they are put forward over it. "
            "Ask for 2024-03-31T01:30:00+01:00 or 2024-03-31T03:30:00+02:00.",
        )


async def test_a_local_time_that_clocks_show_twice_is_asked_about(bench: Workbench) -> None:
    arguments = {"time": "2024-10-27T02:30:00", "from_zone": "Europe/Berlin", "to_zone": "UTC"}
    assert failure(await bench.call("convert_time", arguments)) == (
        "invalid_arguments",
        "The clocks of Europe/Berlin show 2024-10-27T02:30:00 twice: 2024-10-27T02:30:00+02:00, then "
        '2024-10-27T02:30:00+01:00. Say which with if_twice: "earlier" or "later".',
    )
    earlier = (await bench.call("convert_time", arguments | {"if_twice": "earlier"})).unwrap()
    later = (await bench.call("convert_time", arguments | {"if_twice": "later"})).unwrap()
    assert (earlier.time, later.time) == ("2024-10-27T00:30:00+00:00", "2024-10-27T01:30:00+00:00")


async def test_a_day_across_a_change_of_clocks_has_24_hours(bench: Workbench) -> None:
    arguments = {"start": "2024-03-30T12:00:00", "duration": "P1D", "zone": "Europe/Berlin"}
    moment = (await bench.call("add_duration", arguments)).unwrap()
    assert (moment.time, moment.weekday) == ("2024-03-31T13:00:00+02:00", "Sunday")


async def test_days_are_counted_all_or_from_monday_to_friday(bench: Workbench) -> None:
    june = {"start": "2025-06-01", "end": "2025-07-01"}
    assert (await bench.call("days_between", june)).unwrap() == 30
    assert (await bench.call("days_between", june | {"count": "monday_to_friday"})).unwrap() == 21
    back = {"start": june["end"], "end": june["start"]}
    assert (await bench.call("days_between", back | {"count": "monday_to_friday"})).unwrap() == -21
    assert failure(await bench.call("days_between", june | {"end": "2025-06-31"}))[0] == "invalid_arguments"
    assert failure(await bench.call("days_between", june | {"count": "weekends"}))[0] == "invalid_arguments"


def test_the_demo_uses_nothing_but_toolcrib_and_the_standard_library() -> None:
    import ast

    import toolcrib.demo

    allowed = sys.stdlib_module_names | {"toolcrib"}
    for file in Path(toolcrib.demo.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and not node.level:
                assert node.module is not None
                assert node.module.partition(".")[0] in allowed
                assert node.module != "toolcrib" or {name.name for name in node.names} <= set(toolcrib.__all__)
            elif isinstance(node, ast.Import):
                assert {name.name.partition(".")[0] for name in node.names} <= allowed
