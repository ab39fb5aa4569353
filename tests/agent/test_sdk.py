"""What the clients over providers' own SDKs share."""

import pytest

from toolcrib.agent.sdk import package, problem_of, retry_after


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250", "retry-after": "7"}, 0.25),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, None),
    ],
)
def test_when_to_come_back_is_read_from_the_headers(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


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
        package("toolcrib_test_broken")
