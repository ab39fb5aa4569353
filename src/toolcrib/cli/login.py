"""`toolcrib auth login`: the person at this computer grants what tools need, in a browser, by a code, or by a key."""

import asyncio
import getpass
import sys
import threading
import webbrowser
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from ..core import Caller, SetupError, ToolAuth, ToolcribError
from ..workbench import Crib
from ..workbench.credentials import CALLBACK_PATH
from .prompts import has_person
from .terminal import UsageError, echo, is_terminal

if TYPE_CHECKING:
    from ..auth import Needed, Owner

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
    need = broker.needed(required, required.provider)
    # A client without a secret may be a public one.
    if {*absent} - {"client_secret"} and secret is None and need.handler_name == "oauth2":
        raise SetupError(_configuration(need, absent, broker.redirect_uri))
    # And what is waited for already: so one login is enough.
    scopes = await broker.open_scopes(need, caller)
    need = replace(need, scopes=tuple({*need.scopes, *scopes}))
    if secret is not None or need.handler_name != "oauth2":
        await _save_key(crib, need, caller, secret)
    elif device:
        await _by_device(crib, need, caller)
    else:
        await _by_browser(crib, need, caller, port, browser=browser)
    return need.owner(caller)


def _configuration(need: "Needed", absent: Sequence[str], redirect_uri: str | None) -> str:
    """Return what to do before a login can work."""
    address = redirect_uri or f"http://127.0.0.1:PORT{CALLBACK_PATH}"
    port = "" if redirect_uri else " PORT is any, unless the provider wants an exact address: then log in with --port."
    return (
        f"{need.entry.title} does not know this program yet. Register an application there "
        f"({need.entry.source}), with the redirect address {address}.{port} Then write into the settings, under "
        f"[auth.{need.provider}]: {', '.join(absent)}."
    )


async def _save_key(crib: Crib, need: "Needed", caller: Caller, secret: str | None) -> None:
    from ..auth import Grant

    forms = {"basic": "user:password", "keypair": "key:secret"}
    form = forms.get(need.handler_name, "key")
    text = read_secret(f"The {form} for {need.entry.title}: ") if secret is None else secret
    if form != "key" and ":" not in text:
        raise ToolcribError(f"'{need.provider}' takes {form}, with a colon between them.")
    await crib.credentials.save(need.owner(caller), Grant(text))


def read_secret(prompt: str) -> str:
    """Return a secret from the keyboard, unseen, or else the text of standard input."""
    if is_terminal(0):
        text = getpass.getpass(prompt)
    else:
        content = sys.stdin.buffer.read(MAX_SECRET_BYTES + 1)
        if len(content) > MAX_SECRET_BYTES:
            raise UsageError(f"A secret has at most {MAX_SECRET_BYTES} bytes.")
        try:
            text = content.decode("utf-8-sig").rstrip("\r\n")
        except UnicodeDecodeError:
            raise UsageError("Standard input is not UTF-8 text, so it cannot be sent as a secret.") from None
    if not text.strip():
        raise UsageError("Nothing was entered.")
    if not text.isprintable() and "\n" not in text:
        raise UsageError("There are control characters in it, so it cannot be sent as a secret.")
    return text


async def _by_device(crib: Crib, need: "Needed", caller: Caller) -> None:
    broker = crib.credentials.broker
    flow = broker.flow(need)
    scopes = broker.scopes_of(need)
    code = await flow.start_device(scopes)
    echo(f"Open {code.verification_url} and enter the code {code.user_code}")
    pause_s = code.interval_s
    while datetime.now(UTC) + timedelta(seconds=pause_s) < code.expires_at:
        await asyncio.sleep(pause_s)
        grant = await flow.poll_device(code.device_code, scopes)
        if grant == "slow_down":
            pause_s += 5  # RFC 8628, 3.5
        elif grant != "pending":
            await crib.credentials.save(need.owner(caller), grant)
            return
    raise ToolcribError(f"The code for {need.entry.title} was not entered in time.")


async def _by_browser(crib: Crib, need: "Needed", caller: Caller, port: int | None, *, browser: bool) -> None:
    broker = crib.credentials.broker
    is_elsewhere = port is None and broker.redirect_uri is not None
    with ExitStack() as stack:
        callback = None if is_elsewhere else stack.enter_context(_callback(crib, caller, port or 0))
        question = await broker.ask(need, caller, need.provider, redirect_uri=callback.url if callback else None)
        pending = await crib.credentials.open(question)
        if pending.url is None:
            raise SetupError(f"'{need.provider}' has no authorization endpoint. Try --device, or --token -.")
        echo(f"Open this address in a browser, and grant access:\n{pending.url}")
        if browser and has_person():
            await asyncio.to_thread(webbrowser.open, pending.url)
        if callback is None:
            # The registered address is that of another server: it completes the login, in the shared store.
            if not await crib.credentials.wait_for(pending, None):
                raise ToolcribError(f"Nothing was granted at {need.entry.title}, or not in time. {_AGAIN}")
            return
        try:
            await asyncio.wait_for(callback.completion, (pending.expires_at - crib.pending.clock()).total_seconds())
        except TimeoutError:
            raise ToolcribError(f"Nothing was granted at {need.entry.title} in time. {_AGAIN}") from None
        await asyncio.sleep(0.1)  # for the page, which a thread writes


@dataclass(frozen=True, slots=True)
class _Callback:
    """An address on loopback that a provider sends the browser back to; *completion* is done when a grant is stored."""

    url: str
    completion: asyncio.Future[None]


@contextmanager
def _callback(crib: Crib, caller: Caller, port: int) -> Generator[_Callback]:
    """Listen for the answer of a provider. Raises SetupError where the port is taken."""
    loop = asyncio.get_running_loop()
    completion: asyncio.Future[None] = loop.create_future()

    async def complete(url: str) -> str:
        """Complete the authorization that *url* belongs to. Returns the text of the page."""
        from ..auth import CallbackError

        try:
            await crib.credentials.complete(url, caller)
        except CallbackError as error:
            if error.reason not in ("unknown", "foreign") and not completion.done():
                completion.set_exception(error)
            return str(error).rstrip(".")
        if not completion.done():
            completion.set_result(None)
        return "Granted"

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.partition("?")[0] != CALLBACK_PATH:
                self.send_error(404)
                return
            text = asyncio.run_coroutine_threadsafe(complete(self.path), loop).result(60)
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(_PAGE.format(escape(text)).encode())

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
            return

    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise SetupError(f"Port {port} cannot be listened on: {error.strerror}. Take another: --port") from None
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield _Callback(f"http://127.0.0.1:{server.server_port}{CALLBACK_PATH}", completion)
    finally:
        server.shutdown()
        server.server_close()
