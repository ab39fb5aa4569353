"""Webhooks: tell a receiver what has ended and what waits for a person, at least once, and not what is in it.

A message says what it is about, and where to fetch it. Whatever the receiver answers costs that message alone.
"""

import asyncio
import base64
import hmac
import json
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

from ..core import Pending, Redaction, StoreError
from ..machinery import LedgerEntry, create_lasting_task, log_failure, redacted, text_digest
from ..net import Guard
from ..net.client import GuardedTransport
from ..store.outbox import HOOK_LEASE_S, Outbox
from ..store.webhook import Topic, Webhook
from ..workbench import Task

if TYPE_CHECKING:
    from ..store import Store

Row = Mapping[Any, Any]

MAX_SENDING = 8
"""How many messages are sent to one receiver at a time."""
MAX_TRIES = 40
FIRST_PAUSE_S, MAX_PAUSE_S = 5.0, 3600.0
"""The pauses before a message is sent again, each twice as long as the one before: a day and a half in all."""
SEND_TIMEOUT_S = HOOK_LEASE_S / 3  # while it lasts, no other process sends the message
_NAMES = ("id", "tool", "principal", "thread")

_log = logging.getLogger("toolcrib")


class WebhookSender:
    """Sends what is due of the outbox of *store*. *shown* makes a Task of a row of it."""

    def __init__(self, store: "Store", shown: Callable[[LedgerEntry], Task], redaction: Redaction | None) -> None:
        self._webhooks = store.webhooks
        self._outbox = Outbox(store)
        self._shown = shown
        self._redaction = redaction
        self._sending: dict[asyncio.Task[None], Topic] = {}

    @property
    def sending(self) -> list[asyncio.Task[None]]:
        return list(self._sending)

    async def send_due(self) -> None:
        """Begin to send what is due. Raises StoreError."""
        for topic, webhook in self._webhooks.items():
            room = MAX_SENDING - list(self._sending.values()).count(topic)
            for row in await self._outbox.claim(topic, room) if room else ():
                task = create_lasting_task(self._send(topic, webhook, row))
                self._sending[task] = topic
                task.add_done_callback(self._sending.pop)

    async def _send(self, topic: Topic, webhook: Webhook, row: Row) -> None:
        """Send *row* once, and note whether that is to be repeated."""
        tries, settle = row["hook_tries"] + 1, partial(self._outbox.settle, topic, row)
        try:
            status, problem = await self._outcome(topic, webhook, row)
        except asyncio.CancelledError:
            with suppress(StoreError):
                await settle(retry_s=0)
            raise
        is_over = 0 < status < 300 or status == 410 or tries >= MAX_TRIES
        if problem and (is_over or tries == 1):
            next_step = "That is given up" if is_over else "It is sent again"
            text = f"The webhook at {webhook.host} did not take '{row['id']}': {problem}. {next_step}."
            _log.warning("%s", redacted(text, self._redaction))
        try:
            await settle(retry_s=None if is_over else min(FIRST_PAUSE_S * 2.0 ** (tries - 1), MAX_PAUSE_S))
        except StoreError as error:  # it is due again after its lease
            log_failure(f"What the webhook at {webhook.host} got could not be noted", error, self._redaction)

    async def _outcome(self, topic: Topic, webhook: Webhook, row: Row) -> tuple[int, str]:
        """Send *row*. Return the status of the answer, 0 for none, and what went wrong, if anything did."""
        try:
            message = await asyncio.to_thread(self._message, topic, row, webhook)
            status = 0 if message is None else await _post(webhook, *message)
        except Exception as error:
            return 0, str(error).rstrip(".") or type(error).__name__
        return status, f"it answered {status}" if status >= 300 else ""

    def _message(self, topic: Topic, row: Row, webhook: Webhook) -> tuple[str, bytes] | None:
        """Return the id and the body of the message about *row*; None for a task that runs on, late as its lease is."""
        subject, at = self._outbox.subject(topic, row)
        data: dict[str, Any]
        if isinstance(subject, Pending):
            kind, run, path, data = "pending.opened", 0, "/api/pending", subject.to_dict()
            names = (*_NAMES, "kind", "message", "expires_at")
        else:
            task = self._shown(subject)
            if task.state not in ("ended", "lost"):
                return None
            kind, run, path, data = f"task.{task.state}", subject.fence, f"/api/tasks/{task.id}", task.to_dict()
            names = (*_NAMES, "state", "status", "error")
            if task.result is not None:
                at = task.result.finished_at
                data |= {"status": task.result.status, "error": task.result.error and task.result.error.code}
        data = {name: data[name] for name in names if data.get(name) is not None}
        if webhook.base_url is not None:
            data["url"] = webhook.base_url.rstrip("/") + path
        body = json.dumps({"type": kind, "timestamp": at.isoformat(), "data": data}).encode()
        return f"msg_{text_digest(f'{kind} {subject.id} {run}')[:32]}", body


async def _post(webhook: Webhook, id: str, body: bytes) -> int:  # noqa: A002
    """Return the status of the answer, of which nothing else is read."""
    from httpx2 import Request  # not before `net`, which names the extra that it needs

    guard = Guard(allow=[*webhook.allow, *([webhook.host] if _is_literal(webhook.host) else [])])
    request = Request("POST", webhook.url, content=body, headers=_signed(webhook, id, body))
    async with GuardedTransport(guard, 0, SEND_TIMEOUT_S) as transport:  # a client would log the URL
        response = await transport.handle_async_request(request)
        await response.aclose()
        return response.status_code


def _signed(webhook: Webhook, id: str, body: bytes) -> Mapping[str, str]:  # noqa: A002
    """Return the headers of a message, as https://www.standardwebhooks.com has them."""
    now, key = str(int(time.time())), base64.b64decode(webhook.secret.removeprefix("whsec_"))
    signature = base64.b64encode(hmac.digest(key, f"{id}.{now}.".encode() + body, "sha256")).decode()
    names = {"webhook-id": id, "webhook-timestamp": now, "webhook-signature": f"v1,{signature}"}
    return {"content-type": "application/json", "user-agent": "toolcrib", **names}


def _is_literal(host: str) -> bool:
    """Return whether *host* is an address, which its operator has written down: no look-up can make it another one."""
    try:
        return bool(ip_address(host))
    except ValueError:
        return host == "localhost"
