"""One request of a person's browser, what is asked of the API for it, and how the answer is shown."""

import hmac
import json
import shlex
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode, urlsplit

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ...machinery import escaped
from ...workbench import Right
from ..access.callers import Callers, local_caller
from ..wire import TooLarge, encoded_path, header, read_body, to_bytes
from .sessions import Session

_FOLDER = Path(__file__).parent
STATIC = _FOLDER / "static"
MAX_FORM_BYTES = 16 * 1024 * 1024
_MAX_FIELDS = 2000
MAX_COLUMNS = 12
_ROOMS: Sequence[tuple[str, str, Right | None]] = [
    ("", "Home", None),
    ("approvals", "Approvals", None),
    ("tools", "Tools", None),
    ("calls", "Calls", None),
    ("tasks", "Tasks", None),
    ("connections", "Connections", None),
    ("sources", "Sources", None),
    ("keys", "Keys", "keys"),
    ("stats", "Figures", None),
]

Answer = ASGIApp


@dataclass(frozen=True, slots=True)
class Page:
    """The *handler* of a *path*, where `*` is any one name. It gets those names in percent-encoding.

    *api* is the path of the API that its `.json` passes on, with `{}` for each name.
    """

    path: str
    handler: Callable[..., Awaitable[Answer]]
    api: str | None = None
    method: str = "GET"


class Problem(Exception):
    """The reason why a visit ends with a page that shows it, and with *status*."""

    def __init__(self, status: int, title: str, detail: str, data: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.status = status
        self.title = title
        self.detail = detail
        self.data = data or {}


@dataclass
class Visit:
    """A request. `session` is there once the browser is known, `form` once that of a POST was read."""

    request: Request
    nonce: str
    base_url: str
    """The address of the console, without a slash at its end."""
    callers: Callers
    inner: ASGIApp = field(repr=False)
    mcp_path: str
    session: Session | None = None
    form: FormData = field(default_factory=FormData)

    @property
    def root(self) -> str:
        """The path that links of pages begin with."""
        return quote(self.request.scope.get("root_path", "").rstrip("/"))

    @property
    def rooms(self) -> Sequence[tuple[str, str]]:
        """The entries of the menu, each by the first part of its path and its title."""
        has_keys = getattr(self.callers.identify, "keys", None) is not None
        rooms = [(room, title) for room, title, right in _ROOMS if right is None or self.may(right)]
        return [(room, title) for room, title in rooms if room != "keys" or has_keys]

    @property
    def room(self) -> str:
        return encoded_path(self.request.scope).split("/")[1]

    @property
    def origin(self) -> str:
        parts = urlsplit(self.base_url)
        return f"{parts.scheme}://{parts.netloc}"

    @property
    def cookie_name(self) -> str:
        parts = urlsplit(self.base_url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return f"{'__Host-' if parts.scheme == 'https' else ''}toolcrib-{port}"

    @property
    def cookie(self) -> str:
        return self.request.cookies.get(self.cookie_name, "")

    @property
    def token(self) -> str:
        """The proof that a form is one of this session's pages."""
        return sha256(f"toolcrib form\0{self.cookie}".encode(errors="replace")).hexdigest()

    def curl(self, tool: str, arguments: str) -> str:
        """Return the command that makes a call of *tool* with *arguments*, JSON text."""
        words = ["curl", "-sS", f"{self.base_url}/api/tools/{quote(tool, safe='')}/call"]
        words += ["-H", "Content-Type: application/json"]
        if self.callers.identify is not local_caller:
            words += ["-H", "Authorization: Bearer YOUR-KEY"]
        return shlex.join([*words, "-d", arguments])

    async def read_form(self) -> None:
        """Read the body as a form. Raises Problem where it is none, or too large."""
        try:
            body = await read_body(self.request.receive, MAX_FORM_BYTES)
            request = Request(self.request.scope, _receiving(body, self.request.receive))
            self.form = await request.form(max_fields=_MAX_FIELDS, max_part_size=MAX_FORM_BYTES)
        except TooLarge:
            raise Problem(413, "Too large", f"A form has at most {MAX_FORM_BYTES} bytes.") from None
        except (HTTPException, MultiPartException, LookupError, ValueError, EOFError):
            # Also what starlette lets through.
            detail = f"The body is not a form, or has more than {_MAX_FIELDS} fields."
            raise Problem(400, "Not a form", detail) from None

    async def read_own_form(self) -> None:
        """Read the body as a form of one of this session's pages. Raises Problem where it is none."""
        await self.read_form()
        token = self.form.get("token") or self.request.headers.get("toolcrib-token", "")
        proof = token.encode(errors="replace") if isinstance(token, str) else b""
        if not hmac.compare_digest(proof, self.token.encode()):
            raise Problem(403, "Not from this page", "This form is of another login. Open its page again.")

    async def posted(self) -> dict[str, str | bytes]:
        """Return the form with the bytes of its files."""
        return {name: of if isinstance(of, str) else await of.read() for name, of in self.form.items()}

    def may(self, right: Right) -> bool:
        """Return whether a role gives this person *right*, such as "calls:all"."""
        return self.session is not None and self.callers.may(self.session.caller, right)

    async def get(self, path: str, **query: object) -> Any:
        """Return the JSON that the API answers. Raises Problem where it refuses."""
        return await self._api("GET", path, query, b"")

    async def post(self, path: str, data: Any = None) -> Any:
        return await self._api("POST", path, {}, data if isinstance(data, bytes) else to_bytes(data or {}))

    async def delete(self, path: str) -> Any:
        return await self._api("DELETE", path, {}, b"")

    def passed_on(self, method: str, path: str, body: bytes | None = None, *, accept: str = "") -> Answer:
        """Return the application that answers as the API does: the request's own query, and *body* if there is one."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            query = scope["query_string"]
            its_receive = receive if body is None else _receiving(body, receive)
            await self.inner(self._scope(method, path, query, accept=accept), its_receive, send)

        return answer

    def _scope(self, method: str, path: str, query: bytes, *, accept: str = "") -> Scope:
        """Return the scope of a request for *path*, in percent-encoding, for the person of this visit."""
        scope, root = self.request.scope, self.request.scope.get("root_path", "")
        raw_path = f"{quote(root)}{path}".encode()
        headers = [(b"content-type", b"application/json"), (b"host", header(scope, b"host").encode("latin-1"))]
        headers += [(b"accept", accept.encode())] if accept else []
        return {
            **scope,
            "method": method,
            "path": f"{root}{unquote(path)}",
            "raw_path": raw_path,
            "query_string": query,
            "headers": headers,
        }

    async def _api(self, method: str, path: str, query: Mapping[str, object], body: bytes) -> Any:
        status, parts = 500, list[bytes]()

        async def send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        text = urlencode({name: value for name, value in query.items() if value not in (None, "")})
        await self.inner(self._scope(method, path, text.encode()), _receiving(body, self.request.receive), send)
        data = json.loads(b"".join(parts) or b"null")
        if status >= 400:
            raise Problem(status, data.get("title", "Refused"), data.get("detail", ""), data)
        return data


def filters_of(visit: Visit, names: Iterable[str]) -> tuple[dict[str, str], Callable[..., str]]:
    """Return the filters in the query of a list, by *names*, and what makes its query with others: None is for none."""
    query = visit.request.query_params
    filters = {name: query[name] for name in names if query.get(name)}

    def address(**changes: object) -> str:
        return urlencode({name: value for name, value in {**filters, **changes}.items() if value is not None})

    return filters, address


def is_own_request(visit: Visit) -> bool:
    """Return whether a browser sent this from a page of this origin. (Other ports of a machine are the same site.)"""
    site, origin = (header(visit.request.scope, name) for name in (b"sec-fetch-site", b"origin"))
    return site == "same-origin" if site else origin == visit.origin


def render(visit: Visit, template: str, status: int = 200, **values: Any) -> Response:
    """Return *template* as a page for *visit*."""
    return HTMLResponse(fragment(visit, template, **values), status)


def fragment(visit: Visit, template: str, **values: Any) -> str:
    """Return *template* as HTML."""
    return _environment().get_template(template).render(visit=visit, root=visit.root, nonce=visit.nonce, **values)


def redirect(visit: Visit, path: str) -> Response:
    """Return the answer that leads to *path* of the console, as after a change."""
    return RedirectResponse(f"{visit.root}{path}", 303)


def set_cookie(visit: Visit, answer: Response, name: str, value: str, age: timedelta) -> None:
    """Have the browser keep *value* for *age*, out of reach for scripts; without an age, forget it."""
    secure, age_s = visit.origin.startswith("https:"), int(age.total_seconds())
    answer.set_cookie(name, value, max_age=age_s, path="/", secure=secure, httponly=True, samesite="lax")


def _receiving(body: bytes, receive: Receive) -> Receive:
    """Return what gives *body* as that of a request, and then what *receive* gives."""
    is_sent = False

    async def receive_body() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_body


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER / "templates"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    environment.filters["segment"] = lambda text: quote(str(text), safe="")
    environment.filters["pretty"] = lambda data: json.dumps(data, indent=2, ensure_ascii=False)
    environment.filters["json_text"] = _json_text
    environment.filters["query"] = urlencode
    environment.filters["web_address"] = _web_address
    environment.filters["moment"] = _moment
    environment.filters["columns"] = columns_of
    return environment


def _visible(value: Any) -> Any:
    """Return *value* with what cannot be seen in it escaped: others wrote most of what is shown."""
    return escaped(value, invisible=True) if isinstance(value, str) and not isinstance(value, Markup) else value


def _json_text(text: str | None) -> str:
    """Return recorded JSON for people; what is not JSON (it may have been cut off) as it is."""
    if text is None:
        return "Not recorded."
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except ValueError:
        return text


def _web_address(url: str) -> str:
    """Return *url* as the target of a link; what is no address of the web, such as `javascript:`, leads nowhere."""
    return url if urlsplit(url).scheme in ("http", "https") else "#"


def columns_of(value: Any) -> list[str]:
    """Return the columns of *value* as a table, if it is a list of objects that have plain values."""
    rows = value if isinstance(value, list) and len(value) > 1 else []
    if not all(isinstance(row, dict) and not any(isinstance(of, dict | list) for of in row.values()) for row in rows):
        return []
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return columns if len(columns) <= MAX_COLUMNS else []


def _moment(text: str | None) -> Markup:
    """Return the moment *text*, in ISO 8601, as an element that a script shows in the zone of the browser."""
    if text is None:
        return Markup("<span class=faint>never</span>")
    moment = text[:19].replace("T", " ")
    return Markup('<time datetime="{}">{} UTC</time>').format(text, moment)
