"""What a tool in Python has of its host: HTTP requests.

    from toolcrib_guest import fetch

    weather = fetch("https://api.example.com/weather?city=Oslo", timeout_s=5).json()

In the sandbox, the hosts are those that `tool.toml` lists and the operator granted. Needs the standard library only.
"""

import base64
import json as _json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class FetchError(OSError):
    """A request that was refused, or had no response. Its text is one line."""


@dataclass(frozen=True, slots=True)
class Response:
    """What a server answered, whatever its status. The names in `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str

    @property
    def text(self) -> str:
        """The content as text, in the charset that its type names, or UTF-8."""
        _, _, charset = self.headers.get("content-type", "").lower().partition("charset=")
        try:
            return self.content.decode(charset.split(";")[0].strip(" \"'") or "utf-8", "replace")
        except LookupError:
            return self.content.decode("utf-8", "replace")

    def json(self) -> Any:
        """Return the content, which is JSON. Raises ValueError where it is not."""
        return _json.loads(self.content)


def fetch(
    url: str,
    method: str = "GET",
    headers: Mapping[str, str] | None = None,
    data: bytes | str | None = None,
    json: Any = None,
    timeout_s: float | None = None,
) -> Response:
    """Send a request, follow its redirects, and return the response. The body is *data*, or *json* as JSON.

    Raises FetchError where the host may not be reached, cannot be, or takes longer than *timeout_s*.
    """
    all_headers = {name.lower(): value for name, value in (headers or {}).items()}
    if json is not None:
        if data is not None:
            raise ValueError("fetch takes 'data' or 'json', not both.")
        data = _json.dumps(json)
        all_headers.setdefault("content-type", "application/json")
    body = data.encode() if isinstance(data, str) else data
    request = {"url": url, "method": method.upper(), "headers": list(all_headers.items()), "timeout_s": timeout_s}
    if body is not None:
        request["body"] = base64.b64encode(body).decode()
    answer = _json.loads(_send(_json.dumps(request)))
    return Response(answer["status"], _headers(answer["headers"]), base64.b64decode(answer["body"]), answer["url"])


def _headers(pairs: list[list[str]]) -> dict[str, str]:
    merged_headers: dict[str, str] = {}
    for name, value in pairs:
        merged_headers[name.lower()] = (
            f"{merged_headers[name.lower()]}, {value}" if name.lower() in merged_headers else value
        )
    return merged_headers


try:
    from componentize_py_types import Err  # type: ignore[import-not-found]  # there in the sandbox only
    from wit_world.imports import http  # type: ignore[import-not-found]
except ModuleNotFoundError:
    # A tool that is trusted, and runs outside of the sandbox.
    from urllib.error import HTTPError
    from urllib.request import Request, urlopen

    def _send(request: str) -> str:
        fields = _json.loads(request)
        if not fields["url"].lower().startswith(("https://", "http://")):
            raise FetchError("A URL begins with https:// and a host.")
        body = base64.b64decode(fields["body"]) if "body" in fields else None
        outgoing = Request(fields["url"], body, dict(fields["headers"]), method=fields["method"])  # noqa: S310
        try:
            response = urlopen(outgoing, timeout=fields["timeout_s"] or 30)  # noqa: S310
        except HTTPError as error:
            response = error
        except OSError as error:
            raise FetchError(str(error)) from None
        with response:
            content = base64.b64encode(response.read()).decode()
            headers = list(response.headers.items())
            return _json.dumps({"url": response.url, "status": response.status, "headers": headers, "body": content})

else:

    def _send(request: str) -> str:
        try:
            answer: str = http.fetch(request)
        except Err as error:
            raise FetchError(error.value) from None
        return answer
