"""What the clients over providers' own SDKs share."""

import asyncio
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from toolcrib.agent.sdk import Clients, ProviderErrors, package, problem_of, retry_after


async def _nothing(_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0.0),
    ],
)
def test_when_to_come_back_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


def test_a_date_to_come_back_at_is_as_many_seconds_away() -> None:
    soon = datetime.now(UTC) + timedelta(seconds=600)
    seconds = retry_after({"retry-after": format_datetime(soon, usegmt=True)})
    assert seconds is not None
    assert 500 < seconds <= 600


def test_each_event_loop_has_a_client_of_its_own_until_it_is_closed() -> None:
    closed: list[object] = []

    async def close(client: object) -> None:
        closed.append(client)

    clients = Clients(None, object, close)

    async def two() -> tuple[object, object, object]:
        before, same = clients.get(), clients.get()
        await clients.close()
        return before, same, clients.get()

    (first, same, later), (other, *_) = asyncio.run(two()), asyncio.run(two())
    assert first is same
    assert len({id(first), id(later), id(other)}) == 3
    assert closed == [first, other]


def test_a_client_that_was_handed_in_is_not_closed() -> None:
    async def close(_: object) -> None:
        raise AssertionError

    mine = object()
    clients = Clients(mine, object, close)

    async def use() -> object:
        got = clients.get()
        await clients.close()
        return got

    assert asyncio.run(use()) is mine


def test_what_makes_a_client_is_asked_for_one() -> None:
    async def use() -> str:
        return Clients(lambda: "made", lambda: "ours", _nothing).get()

    assert asyncio.run(use()) == "made"


def test_long_words_of_a_provider_are_cut_and_secrets_redacted_before_that() -> None:
    troubles = ProviderErrors("x:y", ["secret-key", None, "abc"])
    error = troubles.from_status(500, "w " * 294 + "secret-key is long")  # a cut through the key would leave half of it
    assert "secret-k" not in str(error)
    assert str(error).startswith("Model 'x:y' answered with status 500: w w w")
    assert len(str(error)) < 700


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        *((status, "unauthorized") for status in (401, 403)),
        *((status, "refused") for status in (400, 404, 413, 422)),
        *((status, "unavailable") for status in (408, 500, 503, 529)),
        *((status, "failed") for status in (302, 402)),
        (429, "limited"),
    ],
)
def test_what_a_status_stands_for(status: int, problem: str) -> None:
    assert problem_of(status) == problem


def test_a_package_that_is_there_and_broken_is_not_reported_as_missing(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toolcrib_test_broken.py").write_text("import toolcrib_test_nothing")  # type: ignore[operator]
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="toolcrib_test_nothing"):
        package("toolcrib_test_broken", "x")
