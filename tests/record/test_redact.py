"""Known secrets are redacted however they are written."""

import asyncio
import base64
import gc
import logging
import random
import sys
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from itertools import product
from time import thread_time

import pytest

from toolcrib import Context, SetupError, Workbench, tool
from toolcrib.core import Credential
from toolcrib.record import Redactor, redact
from toolcrib.record.redact import CallerRedactors, redact_log

from .. import fuzz
from .encodings import ENCODINGS, ESCAPES, check_at_random, some_secrets, some_text


def test_a_secret_inside_longer_base64_does_not_survive() -> None:
    secret = "hunter2-and-some-more"
    for before, after in product(("", "a", "ab", "abc", "user:"), ("", "x", "xy", ":more")):
        encoded = base64.b64encode(f"{before}{secret}{after}".encode()).decode()
        redacted = Redactor([secret]).redact(f"Authorization: Basic {encoded}")
        assert "[secret]" in redacted
        assert not any(encoded[start : start + 12] in redacted for start in range(len(encoded) - 11))


def test_secrets_show_in_no_repr_and_short_ones_are_refused() -> None:
    assert "hunter2" not in repr(Redactor(["hunter2"]))
    for short in ("", "abc"):
        with pytest.raises(SetupError, match="at least 4 characters"):
            Redactor([short])


@pytest.mark.parametrize(
    ("unit", "end"), [("a", ""), ("ab", ""), ("a", "b"), ("0123456789", "b")], ids=["aaaa", "abab", "aaab", "digits"]
)
def test_a_secret_that_repeats_itself_takes_time_in_proportion_to_the_text(unit: str, end: str) -> None:
    """A remote server issues the token, and fills its answers with it (second case: with all but its last letter)."""

    def time_of(size: int) -> float:
        secret, text = unit * (size // 400 // len(unit)) + end, unit * (size // len(unit))
        redactor = Redactor([secret])
        times: list[float] = []
        for _ in range(3):
            started_at = thread_time()
            assert redactor.redact(text) == (text if end else "[secret]")
            redactor.split(text)
            times.append(thread_time() - started_at)
        return min(times)

    assert time_of(1_600_000) < 9 * time_of(400_000)  # by pairs, 16 times


def test_of_many_secrets_and_few_the_same_is_found_in_a_long_text() -> None:
    generator = random.Random(5)
    others = Redactor(f"{number:04}-other-secret" for number in range(300))
    for alphabet in ("a", "ab", "abc", "abcdefghijklmnopqrstuvwxyz"):
        for size in (4, 5, 8, 11, 12, 30):
            secrets = {"".join(generator.choices(alphabet, k=generator.randrange(size, 2 * size))) for _ in range(4)}
            body = "".join(generator.choices(alphabet, k=500)) + "-".join(secrets) + alphabet * 3
            short, long = Redactor(secrets).redact(body), Redactor(secrets).redact(body + "\n" * 1000)
            assert long == short + "\n" * 1000
            many = others.copy()
            for secret in secrets:
                many.add(secret)
            assert many.redact(body) == short


log = logging.getLogger("toolcrib")

SECRETS = (
    "hunter2!/<&>'\"\\ +%é",
    "plain-token_1234",
    "first\u00ffand\u0100last",
    "日本語の秘密",
    "🎉🎉🎉🎉",
    "a\nb\tc\x00d",
    "1234",
    "%41&amp;\\n~1",
)


def test_a_secret_is_redacted_in_each_encoding() -> None:
    for secret in SECRETS:
        redactor, rnd = Redactor([secret]), random.Random(1)
        for name, encode in ENCODINGS.items():
            for _ in range(5):
                encoded = encode(secret, rnd)
                shown = redactor.redact(f"(|{encoded}|)")
                assert "[secret]" in shown, (name, encoded)
                assert shown == "(|[secret]|)" or name not in ESCAPES, (name, encoded)


def test_what_is_added_to_a_copy_is_not_in_the_other() -> None:
    one = Redactor(["shared-secret"])
    other = one.copy()
    one.add("secret-of-one")
    other.add("secret-of-other")
    text = "shared-secret secret-of-one secret-of-other"
    assert one.redact(text) == "[secret] [secret] secret-of-other"
    assert other.redact(text) == "[secret] secret-of-one [secret]"
    assert one.copy().redact(text) == one.redact(text)


def test_text_that_is_no_secret_stays_as_it_is() -> None:
    rnd = random.Random(3)
    for _ in range(50):
        redactor = Redactor([f"never-{rnd.random()}" for _ in range(rnd.choice((1, 30)))])
        text = some_text(rnd, 0, 200) + rnd.choice(some_secrets(rnd))
        assert redactor.redact(text) is text
        tail, ready = redactor.split(text)
        assert ready + tail == text


def test_of_secrets_that_threads_add_at_once_none_is_lost() -> None:
    redactor, before = Redactor(), sys.getswitchinterval()
    sets = [[f"secret-{thread}-{number}-value" for number in range(15)] for thread in range(4)]
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda secrets: [redactor.add(secret) for secret in secrets], sets))
    finally:
        sys.setswitchinterval(before)
    assert {redactor.redact(secret) for secrets in sets for secret in secrets} == {"[secret]"}


def test_of_recent_secrets_the_last_so_many_or_so_many_characters_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "MAX_RECENT", 100)
    monkeypatch.setattr(redact, "MAX_RECENT_CHARS", 10_000)
    redactor = Redactor(["lasting-secret"])
    for number in range(101):
        redactor.add_recent(f"recent-{number:03}")
    assert redactor.redact("recent-000 recent-001 recent-100") == "recent-000 [secret] [secret]"
    versions = {redactor.version}
    for letter in "abc":
        redactor.add_recent(letter * 6_000)
        versions.add(redactor.version)
    assert redactor.redact("recent-001 recent-100 lasting-secret") == "recent-001 recent-100 [secret]"
    assert redactor.redact("b" * 6_000 + " " + "c" * 6_000) == "[secret] [secret]"
    assert len(versions) == 4
    redactor.add("another-lasting-one")
    assert redactor.copy().redact("another-lasting-one " + "c" * 6_000) == "[secret] " + "c" * 6_000


@pytest.mark.parametrize("count", [30, pytest.param(800, marks=pytest.mark.nightly)])
def test_random_secrets_are_found_in_each_encoding_and_cuts_change_nothing(count: int) -> None:
    for seed in fuzz.seeds(count):
        check_at_random(random.Random(seed), seed)


# In logs


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


def give(redactors: CallerRedactors, name: str, *, ends_in_s: float | None = None) -> Redactor:
    """Gives *name* a secret, and returns their redactor."""
    ends_at = None if ends_in_s is None else datetime.now(UTC) + timedelta(seconds=ends_in_s)
    redactor = redactors.of(name)
    redactors.give(name, redactor, Credential("idp", f"the-secret-of-{name}", expires_at=ends_at))
    return redactor


def test_many_callers_take_little_room_and_the_secrets_in_use_stay_redacted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(redact, "MAX_REDACTORS", 20)
    redactors = CallerRedactors(Redactor(["the-operators"]))
    used = give(redactors, "used")  # as a workbench has it
    for name, ends_in_s in (("lasting", 3600.0), ("key", None), ("over", -1.0)):
        give(redactors, name, ends_in_s=ends_in_s)
    others = [weakref.ref(give(redactors, f"user-{number}", ends_in_s=-1.0)) for number in range(200)]
    assert sum(reference() is not None for reference in others) <= 20
    assert len(redactors._secrets) <= 2 * 20 + 1  # pyright: ignore[reportPrivateUsage]
    assert redactors.of("used") is used
    logging.getLogger("toolcrib").warning("the-secret-of-used is not the-secret-of-nobody")
    assert "[secret] is not the-secret-of-nobody" in caplog.text
    texts = {
        name: redactors.of(name).redact(f"the-operators, the-secret-of-{name}") for name in ("lasting", "key", "over")
    }
    assert texts == {
        "lasting": "[secret], [secret]",
        "key": "[secret], [secret]",
        "over": "[secret], the-secret-of-over",
    }
    assert redactors.of("user-1").redact("the-secret-of-lasting") == "the-secret-of-lasting"


def test_a_key_without_an_end_stays_for_a_day_after_it_was_last_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redact, "MAX_REDACTORS", 2)
    redactors, now = CallerRedactors(Redactor()), time.time()
    give(redactors, "key")
    monkeypatch.setattr(time, "time", lambda: now + 3 * 86_400)
    for number in range(2):  # of which the second takes the place of the key
        give(redactors, f"user-{number}")
    monkeypatch.setattr(time, "time", lambda: now + 3.9 * 86_400)
    for number in range(2, 9):
        give(redactors, f"user-{number}")
    assert redactors.of("key").redact("the-secret-of-key") == "[secret]"
    monkeypatch.setattr(time, "time", lambda: now + 4.1 * 86_400)
    for number in range(9, 18):
        give(redactors, f"user-{number}")
    assert "key" not in redactors._secrets  # pyright: ignore[reportPrivateUsage]
