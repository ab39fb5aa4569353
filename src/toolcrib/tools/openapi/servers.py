"""Which version a document has, and where its requests go: servers, their variables, and relative addresses."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urljoin, urlsplit

from ...core import LoadError
from .references import Unusable

TEMPLATE = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Options:
    """What the operator chooses: see `openapi_source`."""

    server: str | None = None
    variables: Mapping[str, str] = field(default_factory=dict[str, str])


def require_version(root: Any, where: str) -> str:
    """The version of the document *root*: '3.0', '3.1' or '3.2'. Raises LoadError for any other."""
    if not isinstance(root, dict):
        raise LoadError(f"{where} is not an OpenAPI document: it is not an object.")
    if "swagger" in root:
        raise LoadError(
            f"{where} is of Swagger {str(root['swagger'])[:10]}, which is not read here. Convert it to OpenAPI 3, for "
            "example with `npx swagger2openapi`."
        )
    version = str(root.get("openapi", ""))
    if (found := re.fullmatch(r"(3\.[012])(\.\d+)?(-.*)?", version)) is None:
        what = f"of OpenAPI '{version[:20]}'" if version else "not an OpenAPI document: it has no 'openapi'"
        raise LoadError(f"{where} is {what}. OpenAPI 3.0, 3.1 and 3.2 are read.")
    return found[1]


def server_of(holders: Sequence[Mapping[str, Any]], where: str, options: Options) -> str:
    """The address that paths are put after, without a slash at its end. Raises Unusable."""
    written = options.server
    if written is None:
        servers = next((each for holder in holders if isinstance(each := holder.get("servers"), list) and each), None)
        usable = [each for each in servers or () if isinstance(each, dict) and isinstance(each.get("url"), str)]
        written = "/" if not usable else _filled(usable[0], options.variables)
    return _absolute(where, written)


@lru_cache(maxsize=256)
def _absolute(where: str, written: str) -> str:
    url = urljoin(where, written)
    parts = urlsplit(url)
    try:
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        has_port = False
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Unusable(
            f"the document does not name the address of its server ('{written[:80]}'). Name it: "
            '`openapi = { server = "https://..." }` in its [[source]], or openapi_source(..., server=...)'
        )
    if (
        parts.query
        or parts.fragment
        or {*"@*"} & {*parts.netloc}
        or not has_port
        or not url.isprintable()
        or "\\" in url
    ):
        raise Unusable(f"'{written[:80]}' is not the address of a server")
    if any(part in (".", "..") for part in parts.path.split("/")):
        raise Unusable(f"'{written[:80]}' is not the address of a server")
    return url.rstrip("/")


def _filled(server: Mapping[str, Any], chosen: Mapping[str, str]) -> str:
    declared = server.get("variables")
    known: Mapping[str, Any] = declared if isinstance(declared, dict) else {}

    def value(match: re.Match[str]) -> str:
        name = match[1]
        about = known.get(name)
        about = about if isinstance(about, dict) else {}
        text = chosen.get(name, about.get("default"))
        choices = about.get("enum")
        if text is None:
            raise Unusable(f"the variable '{name[:60]}' of its server has no default. Name its value in `variables`")
        if name in chosen and isinstance(choices, list) and choices and text not in choices:
            raise Unusable(f"the variable '{name[:60]}' of its server is one of {', '.join(map(str, choices))[:200]}")
        return str(text)

    return TEMPLATE.sub(value, str(server["url"]))
