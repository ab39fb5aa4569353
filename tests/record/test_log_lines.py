"""Secrets in what is logged under `toolcrib`, as long as their redactor is in use."""

import asyncio
import gc
import logging

import pytest

from toolcrib import Context, Workbench, tool
from toolcrib.record import Redactor
from toolcrib.record.redact import redact_log

log = logging.getLogger("toolcrib")


def test_a_line_and_its_traceback_are_redacted(caplog: pytest.LogCaptureFixture) -> None:
    redactor = Redactor(["hunter2-secret"])
    redact_log(redactor)
    try:
        raise OSError("no route with hunter2-secret")
    except OSError:
        log.exception("failed with %s", "hunter2-secret")
    (record,) = caplog.records
    assert record.getMessage() == "failed with [secret]"
    assert record.exc_info is None
    assert record.exc_text is not None
    assert record.exc_text.startswith("Traceback (most recent call last):\n")
    assert record.exc_text.endswith("\nOSError: no route with [secret]")
    assert "hunter2" not in caplog.text


def test_a_short_secret_of_one_hides_no_longer_one_of_another(caplog: pytest.LogCaptureFixture) -> None:
    redactors = [Redactor(["1234"]), Redactor(["key-0123456789"]), Redactor(["4567"])]
    for redactor in redactors:
        redact_log(redactor)
    log.error("it is %s, not 1234", "key-0123456789", extra={"beside": "key-0123456789"})
    (record,) = caplog.records
    assert record.getMessage() == "it is [secret], not [secret]"
    assert record.__dict__["beside"] == "[secret]"


async def test_what_a_tool_logs_and_what_is_logged_beside_the_message_is_redacted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secret = "hunter2-secret"

    class Account:
        def __repr__(self) -> str:
            return f"Account({secret})"

    @tool
    async def look(context: Context) -> None:
        for _ in range(2):
            context.log.warning("as %s", secret, exc_info=OSError(secret))
        extra = {"token": secret, "all": {secret: (1, {secret})}, "of": Account(), "number": 7}
        context.log.warning({"token": secret}, extra=extra)
        asyncio.current_task().set_name(secret)  # type: ignore[union-attr]
        context.log.warning("a task", stack_info=True)

    caplog.set_level(logging.WARNING, "toolcrib.tool")
    async with Workbench([look], secrets=[secret]) as bench:
        assert (await bench.call("look")).error is None
    first, again, structured, named = (each for each in caplog.records if each.name == "toolcrib.tool.look")
    assert first.getMessage() == again.getMessage() == "as [secret]"
    assert vars(structured)["message"] == "{'token': '[secret]'}"
    assert vars(structured)["token"] == "[secret]"
    assert vars(structured)["all"] == "{'[secret]': (1, {'[secret]'})}"
    assert (vars(structured)["of"], vars(structured)["number"]) == ("Account([secret])", 7)
    assert named.stack_info is not None
    assert not any(secret in f"{vars(record)}" for record in caplog.records)


async def test_what_asyncio_reports_of_a_forgotten_task_is_redacted(caplog: pytest.LogCaptureFixture) -> None:
    async def leave_a_task() -> None:
        async def fail() -> None:
            raise OSError("no route with hunter2-secret")

        asyncio.create_task(fail())  # noqa: RUF006 - nobody waits for it, which is what asyncio reports
        await asyncio.sleep(0.01)

    async with Workbench([leave_a_task], secrets=["hunter2-secret"]) as bench:
        await bench.call("leave_a_task")
        gc.collect()
    (record,) = (each for each in caplog.records if each.name == "asyncio")
    assert record.getMessage().startswith("Task exception was never retrieved")
    assert "OSError: no route with [secret]" in caplog.text
    assert "hunter2" not in caplog.text


def test_a_line_that_cannot_be_formatted_is_left_to_the_handlers(capsys: pytest.CaptureFixture[str]) -> None:
    redactor, handler = Redactor(["hunter2-secret"]), logging.StreamHandler()
    redact_log(redactor)
    log.addHandler(handler)
    log.propagate = False
    try:
        log.error("%d", "no number")
    finally:
        log.removeHandler(handler)
        log.propagate = True
    assert "--- Logging error ---" in capsys.readouterr().err
