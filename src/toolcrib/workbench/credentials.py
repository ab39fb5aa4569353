"""The credentials of a crib's callers: asking for what tools need, taking what is granted, and what settings say of it.

`auth` and `store` are imported on first use: they need extras.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..call import PendingCalls
from ..core import (
    Answer,
    Approve,
    Broker,
    Call,
    Caller,
    Credential,
    Deny,
    Pending,
    Recorder,
    Requirement,
    SetupError,
    ToolAuth,
)

if TYPE_CHECKING:
    from ..auth import Authorization, Completed, CredentialBroker, Grant, Owner
    from ..store import Store
    from .settings import CallsTable, Settings

CALLBACK_PATH, FORM_PATH, CLIENT_PATH = "/auth/callback", "/auth/secret", "/auth/client.json"
"""Where the callback app takes what providers send back, and what people enter, and describes this program."""
_LOOK_INTERVAL_S = 0.25


class DeferredBroker:
    """The broker of a program whose settings say nothing of credentials, made when one is first asked for."""

    def __init__(self, make: Callable[[], "CredentialBroker"]) -> None:
        self._make = make
        self.is_made = False
        self.changes: list[Callable[[CredentialBroker], None]] = []

    @cached_property
    def broker(self) -> "CredentialBroker":
        broker, self.is_made = self._make(), True
        for change in self.changes:
            change(broker)
        return broker

    async def authorize(
        self, requirements: Sequence[Requirement], caller: Caller, call: Call, /
    ) -> Sequence[Credential] | Pending:
        return await self.broker.authorize(requirements, caller, call)

    async def has_granted(self, required: ToolAuth, caller: Caller) -> bool:
        return await self.broker.has_granted(required, caller)

    async def settle(self) -> None:
        if self.is_made:
            await self.broker.settle()


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a CredentialBroker and the pending calls of a crib have to do with each other."""

    given: Broker | None
    pending: PendingCalls

    @property
    def has_broker(self) -> bool:
        """Return whether the crib has a CredentialBroker."""
        if self.given is None or isinstance(self.given, DeferredBroker):
            return self.given is not None
        from ..auth import CredentialBroker

        return isinstance(self.given, CredentialBroker)

    @property
    def broker(self) -> "CredentialBroker":
        """The broker of the crib. Raises SetupError where it has none, or another kind of one."""
        if isinstance(self.given, DeferredBroker):
            return self.given.broker
        from ..auth import CredentialBroker

        if not isinstance(self.given, CredentialBroker):
            raise SetupError("This crib has no CredentialBroker: Crib(broker=CredentialBroker(...)).")
        return self.given

    def configure(self, change: "Callable[[CredentialBroker], None]") -> None:
        """Make *change* to the broker, or have it made as soon as there is one."""
        if isinstance(self.given, DeferredBroker) and not self.given.is_made:
            self.given.changes.append(change)
        else:
            change(self.broker)

    async def ask_for(self, requirements: Iterable[Requirement], caller: Caller) -> list[Pending]:
        """Return what *caller* has yet to grant for all of *requirements*: one pending a provider, with all scopes."""
        questions = await self.broker.ask_for(requirements, caller, "")
        return [await self.open(question) for question in questions]

    async def open(self, pending: Pending) -> Pending:
        """List *pending* with what waits, so that `wait_for` finds it."""
        return await self.pending.store.open(pending, now=self.pending.clock())

    async def complete(self, url: str, caller: Caller | None = None) -> "Completed":
        """Complete the authorization that *url*, a callback, is about. Raises CallbackError."""
        from ..auth import CallbackError

        try:
            completion = await self.broker.complete(url, caller=caller)
        except CallbackError as error:
            if error.pending_id is not None:
                await self._answer(error.pending_id, Deny(str(error)), "provider")
            raise
        await self._note(completion.pending_ids, completion.owner)
        return completion

    async def save(self, owner: "Owner", grant: "Grant", *, asked: "Authorization | None" = None) -> None:
        """Store *grant* for *owner*; *asked* is what they were asked, which ends with it. Raises CallbackError."""
        from ..auth import CallbackError

        broker = self.broker
        grant.require_usable(owner.handler)
        if asked is not None and asked.owner != owner:
            raise CallbackError("This was asked of somebody else.", "foreign")
        if asked is not None and not await broker.vault.close(asked):
            raise CallbackError("This was entered already.", "unknown")
        await self._note([*await broker.save(owner, grant), *([] if asked is None else [asked.id])], owner)

    async def wait_for(self, pending: Pending, timeout_s: float | None) -> bool:
        """Wait until *pending* is answered, or granted and not refused. False after *timeout_s*, or its expiry."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.pending.clock() < pending.expires_at:
                    row = await self.pending.store.get(pending.id)
                    if row is None or row.state != "open":
                        is_refused = pending.kind == "authorization" and row and isinstance(row.answer, Deny)
                        return row is not None and row.state != "expired" and not is_refused
                    await asyncio.sleep(_LOOK_INTERVAL_S)
        except TimeoutError:
            pass
        return False

    async def _note(self, ids: Iterable[str], owner: "Owner") -> None:
        """Answer what waited for a grant, so that it is not listed any more."""
        for pending_id in ids:
            await self._answer(pending_id, Approve(), owner.principal or "operator")

    async def _answer(self, pending_id: str, answer: Answer, by: str) -> None:
        await self.pending.store.answer(pending_id, answer, by=by, now=self.pending.clock())


def store_of(settings: "Settings", where: str | Path | None = None) -> "Store":
    """Return the store at *where*, else that of *settings*, which is beside their file, with their keys.

    Without a file it is that of the user. Raises SetupError.
    """
    from ..store import Store
    from ..store.database import PROJECT_STORE

    at = settings.values.store
    place = settings.path(at.url or (PROJECT_STORE if settings.file else None)) if where is None else where
    return Store(place, key=settings.path(at.key), keep_keys_s=settings.values.calls.keep_keys_s)


def vault_store(settings: "Settings", store: "Store", where: str | Path | None = None) -> "Store":
    """Return the store of the vault: *store*, of `store_of`, if it is named; else that of the user, for all projects.

    It is closed with *store*.
    """
    from ..store import Store

    at = settings.values.store
    if settings.file is None or at.url or where is not None:
        return store
    user_store = Store(key=settings.path(at.key))
    store.on_close(user_store.close)
    return user_store


def _recorders(calls: "CallsTable", store: Any) -> list[Recorder]:
    """Return the recorders that the settings name."""
    from .. import record

    recorders: list[Recorder] = []
    if calls.required and (store is None or not calls.enabled):
        raise SetupError("'required' in [calls] needs a store, as in url in [store], and 'enabled'.")
    if calls.enabled and store is not None:
        fields = calls.model_dump(include={"commit_start", "required", "durable", "max_age_s", "max_bytes"})
        recorders.append(record.DatabaseCalls(store, with_content=calls.content, **fields))
    if calls.spans:
        recorders.append(record.Spans(with_content=calls.content))
    if calls.metrics:
        recorders.append(record.Metrics())
    return recorders


def configured(
    settings: "Settings", options: Mapping[str, Any] = MappingProxyType({}), *, default_store: bool = False
) -> dict[str, Any]:
    """Return the `store`, the `broker` and the `recorder` made as *settings* say; those of *options* go before them.

    A store that was made is for the caller to close: see `Crib.own`. With *default_store*, there is one also where the
    settings name none: that of `store_of`. Raises SetupError.
    """
    values = settings.values
    parts: dict[str, Any] = {}
    store, is_given = options.get("store"), "store" in options
    vault = where = store
    is_named = any((values.store.url, values.store.key, default_store))
    if isinstance(store, str | Path) or (is_named and not is_given):
        store = parts["store"] = store_of(settings, where)
        vault = vault_store(settings, store, where)
    if settings.webhooks:
        if store is None or not hasattr(store, "webhooks"):
            raise SetupError("'webhook' in [tasks] or [pending] needs a store, as in url in [store].")
        store.webhooks.update(settings.webhooks)
    if "recorder" not in options:
        parts["recorder"] = _recorders(values.calls, store)
    if "broker" not in options:
        if any((values.auth, values.secret, values.providers)):
            parts["broker"] = _broker(settings, vault)
        elif default_store or (store is not None and find_spec("authlib") is not None):
            parts["broker"] = DeferredBroker(partial(_broker, settings, vault))
    return parts


def _broker(settings: "Settings", store: Any) -> "CredentialBroker":
    """Return the broker that the settings describe; grants are in the *store* of the vault, if there is one."""
    from ..auth import Client, CredentialBroker, DatabaseVault, load_catalogue

    values = settings.values
    base_url = None if values.server.public_base_url is None else values.server.public_base_url.rstrip("/")
    file = settings.path(values.providers)
    return CredentialBroker(
        clients={name: Client.from_settings(table) for name, table in values.auth.items()},
        vault=None if store is None else DatabaseVault(store),
        catalogue=load_catalogue(None if file is None else Path(file)),
        secrets=values.secret,
        redirect_uri=None if base_url is None else f"{base_url}{CALLBACK_PATH}",
        form_uri=None if base_url is None else f"{base_url}{FORM_PATH}",
        browser_codes=values.server.keys or values.server.issuer is not None,
        allow=values.net.allow,
    )
