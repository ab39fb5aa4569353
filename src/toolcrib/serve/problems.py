"""Errors of the HTTP API: problem details (RFC 9457)."""

from http import HTTPStatus
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .wire import to_bytes


def problem(status: int, title: str, detail: str, **members: Any) -> Response:
    """Return the answer to a request that fails.

    *title* is the same for every problem of its kind; *detail* is of this one.

    *members* are JSON data for programs, beside them. A member `retry_after_s` becomes the header `Retry-After`, too.
    """
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail, **members}
    after_s = members.get("retry_after_s")
    headers = {} if after_s is None else {"Retry-After": f"{after_s:.0f}"}
    return Response(to_bytes(body), status, headers, "application/problem+json")


class Refused(Exception):
    """Ends a request with a problem: the arguments are those of `problem`."""

    def __init__(self, status: int, title: str, detail: str, **members: Any) -> None:
        self.response = problem(status, title, detail, **members)


async def refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return error.response


async def http_problem(request: Request, error: Exception) -> Response:
    """Return the answer where there is no such path, or no such method of it."""
    assert isinstance(error, HTTPException)
    title = HTTPStatus(error.status_code).phrase
    response = problem(error.status_code, title, f"{title}: {request.method} {request.url.path}"[:200])
    response.headers.update(error.headers or {})
    return response


async def unexpected(_: Request, __: Exception) -> Response:
    return problem(500, "Internal Server Error", "The server failed. The detail is in its log.")
