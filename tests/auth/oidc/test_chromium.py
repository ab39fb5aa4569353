"""One login in a real browser: Chromium, driven over its DevTools protocol."""

import asyncio
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from toolcrib import Caller

from .conftest import REDIRECT, Parts
from .test_authorization_pages import served

pytestmark = pytest.mark.full

ALICE = Caller("alice")


class Browser:
    """Chromium without a window. Commands and events are JSON with a NUL after each, over two pipes."""

    def __init__(self, program: str, folder: Path) -> None:
        (commands, self._out), (self._in, answers) = os.pipe(), os.pipe()
        options = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            f"--user-data-dir={folder}",
        ]
        # The protocol is on file descriptors 3 and 4.
        shell = f'exec "$0" "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["/bin/bash", "-c", shell, program, *options], pass_fds=(commands, answers), stderr=subprocess.DEVNULL
        )
        os.close(commands)
        os.close(answers)
        self._read, self._number, self._session = b"", 0, ""
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        os.write(
            self._out, json.dumps(command | ({"sessionId": self._session} if self._session else {})).encode() + b"\0"
        )
        while (answer := self._next()).get("id") != self._number:
            pass
        found: dict[str, Any] = answer.get("result", {})
        return found

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._read:
            data = os.read(self._in, 65536)
            assert data, "the browser has ended"
            self._read += data
        message, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(message)
        return found

    def evaluate(self, code: str) -> Any:
        return self.send("Runtime.evaluate", expression=code, returnByValue=True).get("result", {}).get("value")

    def until(self, code: str) -> Any:
        """The value of *code* once it is true."""
        until = time.monotonic() + 60
        while not (value := self.evaluate(code)):
            assert time.monotonic() < until, f"{code} was not true in time"
        return value

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[Browser]:
    program = shutil.which("chromium")
    if program is None:
        pytest.skip("chromium is not installed")
    browser = Browser(program, tmp_path / "profile")
    yield browser
    browser.close()


def log_in_and_consent(browser: Browser) -> None:
    browser.until("!!document.querySelector('input[name=login]')")
    browser.evaluate(
        "document.querySelector('input[name=login]').value = 'alice';"
        "document.querySelector('input[name=password]').value = 'any';"
        "document.querySelector('button[type=submit]').click()"
    )
    browser.until("document.querySelector('input[name=prompt]')?.value === 'consent'")
    browser.evaluate("document.querySelector('button[type=submit]').click()")


async def test_somebody_logs_in_in_a_browser_and_the_call_runs(parts: Parts, browser: Browser) -> None:
    async with parts.crib as crib:
        pending = (await crib.workbench(ALICE).call("who")).pending
        browser.send("Page.navigate", url=pending.url)
        log_in_and_consent(browser)
        browser.until("document.location.protocol === 'chrome-error:'")  # nobody listens where they are sent back to
        callback = browser.send("Page.getNavigationHistory")["entries"][-1]["url"]
        assert callback.startswith(REDIRECT)
        await crib.complete(callback, caller=ALICE)
        assert (await crib.workbench(ALICE).call("who")).text == "200 alice"


async def test_somebody_enters_the_code_of_a_server_with_keys_and_the_call_runs(
    tmp_path: Path, browser: Browser
) -> None:
    async with served(tmp_path) as site:
        link, code = await site.ask("alice")

        def browse() -> None:
            browser.send("Page.navigate", url=link)
            browser.until("!!document.querySelector('input[name=code]')")
            browser.evaluate(
                f"document.querySelector('input[name=code]').value = '{code}'; document.querySelector('button').click()"
            )
            browser.until("document.querySelector('a')?.textContent === 'Continue to Local'")
            browser.evaluate("document.querySelector('a').click()")
            log_in_and_consent(browser)
            browser.until("document.querySelector('h1')?.textContent === 'Granted'")

        await asyncio.to_thread(browse)  # the server is on this loop
        assert (await site.call("alice"))["content"][0]["text"] == "200 alice"
