"""The approval as an MCP App (SEP-1865): a page that a client shows beside a call that waits.

It shows what would run, and opens the console, where a person answers as who they are. It answers nothing itself: what
it sends passes through the client, and so could be sent by the model.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core import Caller, Pending, ToolSpec
from ...workbench import Rules
from ..protocol.core import Exchange

URI = "ui://toolcrib/approve"
_EXTENSION, _MEDIA_TYPE = "io.modelcontextprotocol/ui", "text/html;profile=mcp-app"
_CONSOLE = Path(__file__).parents[1] / "console"


class ApprovalApp:
    """The app of a server whose console is at *base_url*, or at the address that a request names."""

    def __init__(self, base_url: str | None) -> None:
        self._base_url = base_url
        page, style = (
            (_CONSOLE / name).read_text(encoding="utf-8") for name in ("templates/mcp_app.html", "static/console.css")
        )
        self._page = page.replace("/* console.css */", style)

    @staticmethod
    def is_shown_by(context: Exchange) -> bool:
        """Return whether the client of a request says that it shows apps."""
        capabilities = context.session.client_capabilities
        settings = ((capabilities and capabilities.extensions) or {}).get(_EXTENSION) or {}
        return _MEDIA_TYPE in (settings.get("mimeTypes") or ())

    @staticmethod
    def names(specs: Sequence[ToolSpec], policy: Any, caller: Caller) -> frozenset[str]:
        """Return the names of the tools that a rule may ask about, for *caller*."""
        rules = (
            [rule for rule in policy if rule.do == "ask" and rule.is_for(caller)] if isinstance(policy, Rules) else []
        )
        return frozenset(spec.name for spec in specs if any(rule.is_about(spec) for rule in rules))

    def contents(self) -> dict[str, Any]:
        """Return the result of `resources/read`. Its page needs no network: the client's policy for it allows none."""
        content = {"uri": URI, "mimeType": _MEDIA_TYPE, "text": self._page, "_meta": {"ui": {"prefersBorder": True}}}
        return {"contents": [content], "ttlMs": 0, "cacheScope": "private", "resultType": "complete"}

    def data(self, pending: Pending, context: Exchange) -> dict[str, Any]:
        """Return what the page shows of *pending*: what its caller may see of it, and where it is answered."""
        base_url = self._base_url or str(context.request.base_url)
        facts = {
            "tool": pending.tool,
            "message": pending.message,
            "arguments": pending.arguments,
            "rule": pending.rule.rpartition(" ")[0],
            "expiresAt": pending.expires_at.isoformat(),
        }
        return {**facts, "url": f"{base_url.rstrip('/')}/approvals/{quote(pending.id, safe='')}"}
