"""`hyperpocket.server`: the pages on loopback that providers send people back to, and that take keys.

A grant that needs them starts them, once for the program. A page is found by a state that cannot be guessed, and it
redirects nowhere.
"""

import logging
import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit
from weakref import WeakSet

from ...core import SetupError
from .config import config
from .futures import CallbackCode, FutureStore

_log = logging.getLogger("toolcrib")

_HOST = "127.0.0.1"
_MAX_BODY_BYTES = 64 * 1024
_TIMEOUT_S = 10
_POLL_INTERVAL_S = 0.05
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
    "Referrer-Policy": "no-referrer",  # the state is in the address
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
}
_PAGE = '<!doctype html><html lang="en"><meta charset="utf-8"><title>{0}</title><p>{0}</p>{1}</html>'
_FORM = """<form method="post" action="submit"><input type="hidden" name="state" value="{state}">{fields}
<p><button>Save</button></p></form>"""
_FIELD = '<p><label>{label} <input type="{kind}" name="{name}" autocomplete="off" required></label></p>'
_SUCCESS = _PAGE.format("success", "<p>You can close this window, and go on.</p>")
_UNKNOWN = "failed: this is not known, or has expired. Call the tool again."
_FIELDS: Mapping[str, tuple[tuple[str, str, str], ...]] = {
    "token": (("token", "Token", "password"),),
    "basic": (("username", "User name", "text"), ("password", "Password", "password")),
    "keypair": (("access_key", "Key", "text"), ("secret_key", "Secret", "password")),
}
"""The forms: the name, label and type of each of their fields."""

_lock = threading.Lock()
_running: list[ThreadingHTTPServer] = []
_users: "WeakSet[object]" = WeakSet()


def needs_callback(text: str) -> bool:
    """Check whether the URL in *text* leads to the callback server, now or after a grant."""
    return config().public_base_url in unquote(text)


def start_callback_server(user: object = FutureStore) -> None:
    """Start the server, unless it runs, for *user*: a Pocket's broker, or else the grants of the program.

    Raises SetupError for a port that is taken.
    """
    with _lock:
        _users.add(user)
        if _running:
            return
        settings = config()
        try:
            _running.append(_listen(settings.internal_server_port))
            if settings.enable_local_callback_proxy and settings.public_server_protocol == "https":
                _running.append(_listen(settings.public_server_port, _self_signed(settings.public_hostname)))
        except BaseException:
            _users.clear()
            _stop()
            raise


def stop_callback_server(user: object = FutureStore) -> None:
    """Stop the server, if it runs and only *user* uses it."""
    with _lock:
        _users.discard(user)
        if not _users:
            _stop()


def _stop() -> None:
    while _running:
        server = _running.pop()
        server.shutdown()
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    context: ssl.SSLContext | None = None

    def finish_request(self, request: Any, client_address: Any) -> None:
        # This runs in the thread of the request, so a slow handshake delays no other.
        request.settimeout(_TIMEOUT_S)
        if self.context is not None:
            request = self.context.wrap_socket(request, server_side=True)
        super().finish_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _log.debug("A request for the callback server ended early", exc_info=True)


def _listen(port: int, context: ssl.SSLContext | None = None) -> ThreadingHTTPServer:
    try:
        server = _Server((_HOST, port), _Pages)
    except OSError as error:
        raise SetupError(
            f"Port {port} of {_HOST} cannot be listened on: {error.strerror}. Providers send people back to it, so set "
            "another: POCKET_INTERNAL_SERVER_PORT, or POCKET_PUBLIC_SERVER_PORT for the address in their browser."
        ) from None
    server.context = context
    name = f"hyperpocket-{port}"
    threading.Thread(target=server.serve_forever, args=(_POLL_INTERVAL_S,), name=name, daemon=True).start()
    return server


class _Refused(Exception):
    """A page that says no, with its status."""

    def __init__(self, text: str, status: int = 400) -> None:
        super().__init__(text)
        self.status = status


class _Pages(BaseHTTPRequestHandler):
    server_version, sys_version = "toolcrib", ""

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = _texts(url.query)
        match self._route(url.path):
            case ["health"]:
                self._send(b'{"status": "ok"}', "application/json")
            case ["auth", _, "oauth2" | "token", "callback"] as route:
                self._answer(lambda: self._came_back(route, query))
            case ["auth", "token"]:
                self._answer(lambda: _form(query))
            case _:
                self.send_error(404)

    def do_POST(self) -> None:
        if self._route(urlsplit(self.path).path) != ["auth", "submit"]:
            self.send_error(404)
            return
        self._answer(lambda: _submitted(self._fields()))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
        return  # codes and states stand in addresses

    def _route(self, path: str) -> list[str]:
        parts = path.strip("/").split("/")
        return parts[1:] if parts[0] == config().callback_url_rewrite_prefix.strip("/") else parts

    def _came_back(self, route: Sequence[str], query: Mapping[str, str]) -> str:
        """Hand what a provider has sent a person back with to the grant that waits for it, at its own address.

        At the address of another one, the code may be another provider's (RFC 9700, 4.4.2.2).
        """
        state, value = query.get("state", ""), query.get("code") or query.get("token")
        address = _require_pending(state).get("redirect_uri", "")
        if self._route(urlsplit(address).path) != route:
            FutureStore.reject_future(state, "the answer came to the address of another provider.")
            raise _Refused(f"failed: this came to the address of another provider. Register {address} there.")
        if "error" in query or not value:
            reason = (query.get("error_description") or query.get("error") or "nothing was granted")[:200].rstrip(".")
            FutureStore.reject_future(state, f"{reason}.")
            raise _Refused(f"failed: {reason}")
        return _resolve(state, CallbackCode(value, query) if "code" in query else value)

    def _fields(self) -> Mapping[str, str]:
        size = self.headers.get("Content-Length", "")
        if not size.isdigit() or int(size) > _MAX_BODY_BYTES:
            raise _Refused("That is too large.", 413)
        return _texts(self.rfile.read(int(size)).decode(errors="replace"))

    def _answer(self, page: Callable[[], str]) -> None:
        try:
            body, status = page(), 200
        except _Refused as refused:
            body, status = _PAGE.format(escape(str(refused)), ""), refused.status
        self._send(body.encode(), "text/html; charset=utf-8", status)

    def _send(self, body: bytes, kind: str, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**_HEADERS, "Content-Type": kind, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def _texts(query: str) -> Mapping[str, str]:
    return {name: values[-1] for name, values in parse_qs(query, keep_blank_values=True).items()}


def _form(query: Mapping[str, str]) -> str:
    state = query.get("state", "")
    data = _require_pending(state)
    fields = "".join(
        _FIELD.format(name=name, label=label, kind=kind) for name, label, kind in _FIELDS[data.get("form", "token")]
    )
    title = data.get("title")
    text = f"Tools need your credentials for {title}." if title else "Tools need your credentials."
    return _PAGE.format(escape(text), _FORM.format(state=escape(state), fields=fields))


def _submitted(fields: Mapping[str, str]) -> str:
    state = fields.get("state", "")
    names = [name for name, _, _ in _FIELDS[_require_pending(state).get("form", "token")]]
    values = [fields.get(name, "").strip() for name in names]
    if not all(values):
        raise _Refused(f"failed: {' and '.join(names)} must be entered. Go back, and try again.")
    return _resolve(state, ":".join(values))


def _require_pending(state: str) -> Mapping[str, Any]:
    """Return the data of the grant with *state*, which is still pending. Raises _Refused."""
    entry = FutureStore.get_future(state)
    if entry is None or entry.future.done():
        raise _Refused(_UNKNOWN, 404)
    return entry.data or {}


def _resolve(state: str, value: Any) -> str:
    try:
        FutureStore.resolve_future(state, value)
    except ValueError:
        raise _Refused(_UNKNOWN, 404) from None
    return _SUCCESS


def _self_signed(host: str) -> ssl.SSLContext:
    """Return a TLS context with a self-signed certificate for *host*: some providers send back to https only."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, host)])
    now, day = datetime.now(UTC), timedelta(days=1)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - day, now + 30 * day
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with TemporaryDirectory() as folder:  # Python loads certificates from files only
        file = Path(folder, "callback.pem")
        file.touch(mode=0o600)
        file.write_bytes(private + builder.sign(key, hashes.SHA256()).public_bytes(pem))
        context.load_cert_chain(file)
    return context
