"""`toolcrib auth login`: the person at this computer grants what tools need, in a browser, by a code, or by a key."""

import asyncio
import getpass
import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html import escape
from typing import TYPE_CHECKING

from ..core import Caller, Pending, SetupError, ToolAuth, ToolcribError
from ..workbench import Crib
from ..workbench.credentials import CALLBACK_PATH
from .prompts import has_person
from .terminal import UsageError, echo, is_terminal

if TYPE_CHECKING:
    from ..auth import CredentialBroker, Needed, Owner

_HEAD = "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nConnection: close\r\n\r\n"
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
        raise SetupError(_configuration(broker, need, absent))
    # And what is waited for already: so one login is enough.
    scopes = await broker.open_scopes(need, caller)
    need = replace(need, scopes=tuple({*need.scopes, *scopes}))
    if secret is not None or need.handler_name != "oauth2":
        await _save_key(crib, need, caller, secret)
    elif device:
        await _by_device(crib, need, caller)
    else:
        await _by_browser(crib, need, caller, port)
    return need.owner(caller)


def _configuration(broker: "CredentialBroker", need: "Needed", absent: Sequence[str]) -> str:
    """Return what to do before a login can work."""
    redirect_uri = broker.redirect_uri_of(need.provider)
    address = redirect_uri or broker.redirect_uri_of(need.provider, base=f"http://127.0.0.1:PORT{CALLBACK_PATH}")
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
        try:
            text = sys.stdin.buffer.read().decode("utf-8-sig").rstrip("\r\n")
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


async def _by_browser(crib: Crib, need: "Needed", caller: Caller, port: int | None) -> None:
    broker = crib.credentials.broker
    completion: asyncio.Future[None] = asyncio.Future()
    server = address = None
    with ExitStack() as stack:
        if port is not None or broker.redirect_uri_of(need.provider) is None:
            server = stack.enter_context(closing(await _listen(crib, caller, port or 0, completion)))
            base = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{CALLBACK_PATH}"
            address = broker.redirect_uri_of(need.provider, base=base)
        try:
            pending = await crib.credentials.open(await broker.ask(need, caller, need.provider, redirect_uri=address))
            url = _address_of(pending, need, broker)
            code = f"{pending.message}.\n" if broker.browser_codes and server is None else ""
            echo(f"{code}Open this address in a browser, and grant access:\n{url}")
            if has_person():
                await asyncio.to_thread(webbrowser.open, url)
            if server is not None:
                await asyncio.wait_for(completion, (pending.expires_at - crib.pending.clock()).total_seconds())
            # Else the registered address is that of another server: it completes the login, in the shared store.
            elif not await crib.credentials.wait_for(pending, None):
                raise ToolcribError(f"Nothing was granted at {need.entry.title}, or not in time. {_AGAIN}")
        except TimeoutError:
            raise ToolcribError(f"Nothing was granted at {need.entry.title} in time. {_AGAIN}") from None


def _address_of(pending: Pending, need: "Needed", broker: "CredentialBroker") -> str:
    """Return the address at which a person grants what is *pending*. Raises SetupError where there is none."""
    if pending.url is not None:
        return pending.url
    if broker.browser_codes and broker.form_uri is None:
        raise SetupError("The server asks for a code at 'public_base_url' in [server]: set that, or try --port.")
    raise SetupError(f"'{need.provider}' has no authorization endpoint. Try --device, or --token -.")


async def _listen(crib: Crib, caller: Caller, port: int, completion: asyncio.Future[None]) -> asyncio.Server:
    """Listen on loopback for the answer of a provider; *completion* is done when a grant is stored.

    Raises SetupError where the port is taken.
    """
    from ..auth import CallbackError

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        error: CallbackError | None = None
        # A browser may open a connection that it does not use.
        with closing(writer), suppress(OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            _, url, *_ = (await reader.readuntil(b"\r\n\r\n")).decode().split()
            if "?" not in url:  # a browser asks for an icon, too
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            try:
                await crib.credentials.complete(url, caller)
            except CallbackError as problem:
                error = problem
            page = _PAGE.format("Granted" if error is None else escape(str(error).rstrip(".")))
            writer.write(f"{_HEAD}{page}".encode())
            with suppress(OSError):
                await writer.drain()
            if completion.done() or (error is not None and error.reason in ("unknown", "foreign")):
                return
            completion.set_result(None) if error is None else completion.set_exception(error)

    try:
        return await asyncio.start_server(answer, "127.0.0.1", port)
    except OSError as error:
        raise SetupError(
            f"Port {port} cannot be listened on: {os.strerror(error.errno or 0)}. Take another: --port"
        ) from None
