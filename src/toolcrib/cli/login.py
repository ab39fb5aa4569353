"""`toolcrib auth login`: the person at this computer grants what tools need, in a browser, by a code, or by a key."""

import asyncio
import getpass
import sys
import threading
import webbrowser
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ..core import Caller, Pending, SetupError, ToolAuth, ToolcribError
from ..workbench import Crib
from ..workbench.credentials import CALLBACK_PATH
from .prompts import has_person
from .terminal import UsageError, echo, is_terminal

if TYPE_CHECKING:
    from ..auth import Grant, Needed, Owner

MAX_SECRET_BYTES = 64 * 1024
_PAGE = "<!doctype html><meta charset=utf-8><title>{0}</title><p>{0}. You can close this window."
_AGAIN = "The address is good for ten minutes: log in again for a new one."


async def log_in(
    crib: Crib,
    required: ToolAuth,
    caller: Caller,
    *,
    device: bool = False,
    secret: str | None = None,
    port: int | None = None,
    browser: bool = True,
) -> "Owner":
    """Have *caller* grant what is *required*, and store it. Returns whose grant it is.

    Without *port* they are sent back to the address of the settings, or else to any free port of this computer. Raises
    ToolcribError or ToolError where that fails.
    """
    broker = crib.credentials.broker
    await broker.discover(required.provider)
    absent = broker.missing(required.provider)  # raises where there is no such provider
    needed = broker.needed(required, required.provider)
    # A client without a secret may be a public one.
    if {*absent} - {"client_secret"} and secret is None and needed.handler_name == "oauth2":
        raise SetupError(_configuration(needed, absent, broker.redirect_uri))
    # And what is waited for already: so one login is enough.
    asked = await broker.open_scopes(needed, caller)
    needed = replace(needed, scopes=tuple({*needed.scopes, *asked}))
    if secret is not None or needed.handler_name != "oauth2":
        await _save_key(crib, needed, caller, secret)
    elif device:
        await _by_device(crib, needed, caller)
    else:
        await _by_browser(crib, needed, caller, port, browser=browser)
    return needed.owner(caller)


def _configuration(needed: "Needed", absent: Sequence[str], redirect_uri: str | None) -> str:
    """Return what to do before a login can work."""
    address = redirect_uri or f"http://127.0.0.1:PORT{CALLBACK_PATH}"
    port = "" if redirect_uri else " PORT is any, unless the provider wants an exact address: then log in with --port."
    return (
        f"{needed.entry.title} does not know this program yet. Register an application there "
        f"({needed.entry.source}), with the redirect address {address}.{port} Then write into the settings, under "
        f"[auth.{needed.provider}]: {', '.join(absent)}."
    )


async def _save_key(crib: Crib, needed: "Needed", caller: Caller, secret: str | None) -> None:
    from ..auth import Grant

    forms = {"basic": "user:password", "keypair": "key:secret"}
    form = forms.get(needed.handler_name, "key")
    text = read_secret(f"The {form} for {needed.entry.title}: ") if secret is None else secret
    if form != "key" and ":" not in text:
        raise ToolcribError(f"'{needed.provider}' takes {form}, with a colon between them.")
    await crib.credentials.save(needed.owner(caller), Grant(text))


def read_secret(prompt: str) -> str:
    """Return a secret from the keyboard, unseen, or else the text of standard input."""
    if is_terminal(0):
        text = getpass.getpass(prompt)
    else:
        written = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
        if len(written) > MAX_SECRET_BYTES:
            raise UsageError(f"A secret has at most {MAX_SECRET_BYTES} bytes.")
        try:
            text = written.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UsageError("Standard input is not UTF-8 text, so it cannot be sent as a secret.") from None
    if not text.strip():
        raise UsageError("Nothing was entered.")
    if not text.isprintable() and "\n" not in text:
        raise UsageError("There are control characters in it, so it cannot be sent as a secret.")
    return text


async def _by_device(crib: Crib, needed: "Needed", caller: Caller) -> None:
    broker = crib.credentials.broker
    flow = broker.flow(needed)
    scopes = broker.scopes_of(needed)
    code = await flow.start_device(scopes)
    echo(f"Open {code.verification_url} and enter the code {code.user_code}")
    pause_s = code.interval_s
    while datetime.now(UTC) + timedelta(seconds=pause_s) < code.expires_at:
        await asyncio.sleep(pause_s)
        grant = await flow.poll_device(code.device_code, scopes)
        if grant == "slow_down":
            pause_s += 5  # RFC 8628, 3.5
        elif grant != "pending":
            await crib.credentials.save(needed.owner(caller), grant)
            return
    raise ToolcribError(f"The code for {needed.entry.title} was not entered in time.")


async def _by_browser(crib: Crib, needed: "Needed", caller: Caller, port: int | None, *, browser: bool) -> None:
    if port is None and crib.credentials.broker.redirect_uri is not None:
        # The registered address is that of another server: it completes what was begun, in the shared store.
        pending = await _show(crib, needed, caller, None, browser=browser)
        if not await crib.credentials.wait_for(pending, None):
            raise ToolcribError(f"Nothing was granted at {needed.entry.title}, or not in time. {_AGAIN}")
        return
    with _Callback(port or 0) as callback:
        pending = await _show(crib, needed, caller, callback.url, browser=browser)
        try:
            await callback.complete(crib, caller, (pending.expires_at - crib.pending.clock()).total_seconds())
        except TimeoutError:
            raise ToolcribError(f"Nothing was granted at {needed.entry.title} in time. {_AGAIN}") from None


async def _show(crib: Crib, needed: "Needed", caller: Caller, redirect_uri: str | None, *, browser: bool) -> Pending:
    """Show the person where to go."""
    asked = await crib.credentials.broker.ask(needed, caller, needed.provider, redirect_uri=redirect_uri)
    pending = await crib.credentials.open(asked)
    if pending.url is None:
        raise SetupError(f"'{needed.provider}' has no authorization endpoint. Try --device, or --token -.")
    echo(f"Open this address in a browser, and grant access:\n{pending.url}")
    if browser and has_person():
        await asyncio.to_thread(webbrowser.open, pending.url)
    return pending


class _Callback:
    """A server on loopback that takes what a provider sends back."""

    def __init__(self, port: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._came: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
                return

        try:
            self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        except OSError as error:
            raise SetupError(f"Port {port} cannot be listened on: {error.strerror}. Take another: --port") from None
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}{CALLBACK_PATH}"

    def __enter__(self) -> "_Callback":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    async def complete(self, crib: Crib, caller: Caller, within_s: float) -> None:
        """Complete the authorization with the first callback that belongs to one. Raises TimeoutError."""
        from ..auth import CallbackError

        ends_at = asyncio.get_running_loop().time() + within_s
        while True:
            async with asyncio.timeout_at(ends_at):  # not over the exchange of a code that came in time
                url, page = await self._came.get()
            try:
                await crib.credentials.complete(url, caller)
            except CallbackError as error:
                page.set_result(str(error))
                if error.reason not in ("unknown", "foreign"):
                    raise
                continue
            page.set_result("Granted")
            await asyncio.sleep(0.1)  # for the page, which a thread writes
            return

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path.partition("?")[0] != CALLBACK_PATH:
            request.send_error(404)
            return
        text = asyncio.run_coroutine_threadsafe(self._page(request.path), self._loop).result(60)
        body = _PAGE.format(escape(text.rstrip("."))).encode()
        request.send_response(200)
        request.send_header("Content-Type", "text/html; charset=utf-8")
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    async def _page(self, path: str) -> str:
        page: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        await self._came.put((path, page))
        return await page


def grants_data(owned: "Sequence[tuple[Owner, Grant | None]]") -> list[dict[str, Any]]:
    """Return grants as JSON data, without their secrets. One that does not open is damaged."""
    return [
        {
            "provider": owner.provider,
            "handler": owner.handler,
            "profile": owner.profile,
            "scopes": [] if grant is None else list(grant.scopes),
            "expires_at": grant and grant.expires_at and grant.expires_at.isoformat(),
            "refreshed": grant is not None and grant.refresh_token is not None,
            "damaged": grant is None,
        }
        for owner, grant in owned
    ]
