"""The vault in a store: grants and open authorizations, sealed, shared by all processes that share the store.

In clear are whose a row is, of which provider, and times. An envelope is bound to all of them: moved to another
caller's row, it does not open.
"""

import asyncio
import hashlib
import json
import logging
import secrets
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite

from ..core import StoreError
from ..machinery import log_failure, text_digest
from ..schema import display_name
from ..store import Lease, Leases, Store
from ..store.tables import Schema, Sealed, decode_bytes, decode_name, encode_name, encode_time, table
from .grant import Grant, Owner
from .vault import MAX_CACHED, Authorization, StoredGrant

_log = logging.getLogger("toolcrib")

_OWNER = ("principal", "profile", "provider", "handler")
_REFRESH_TIMEOUT_S = 90.0
"""How long others wait for a refresh."""

GRANTS = table("toolcrib_grants", *_OWNER, "version", "envelope", key=_OWNER)
AUTHORIZATIONS = table(
    "toolcrib_authorizations", "state", *_OWNER, "question", "expires_at", "envelope", key=("state",)
)


def _of_grant(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return ("grant", *(str(row[name]) for name in (*_OWNER, "version")))


def _of_authorization(row: Mapping[Any, Any]) -> tuple[str, ...]:
    return ("authorization", *(str(row[name]) for name in ("state", *_OWNER, "question", "expires_at")))


AUTH = Schema(
    "auth",
    [
        (
            """CREATE TABLE toolcrib_grants (
                principal TEXT NOT NULL, profile TEXT NOT NULL, provider TEXT NOT NULL, handler TEXT NOT NULL,
                version BIGINT NOT NULL, envelope {bytes} NOT NULL,
                PRIMARY KEY (principal, profile, provider, handler))""",
            """CREATE TABLE toolcrib_authorizations (
                state TEXT PRIMARY KEY, principal TEXT NOT NULL, profile TEXT NOT NULL, provider TEXT NOT NULL,
                handler TEXT NOT NULL, question TEXT NOT NULL, expires_at BIGINT NOT NULL,
                envelope {bytes} NOT NULL)""",
            "CREATE INDEX toolcrib_authorizations_owner ON toolcrib_authorizations "
            "(principal, profile, provider, handler)",
        ),
    ],
    sealed=(
        Sealed(GRANTS, "envelope", _of_grant, is_secret=True),
        Sealed(AUTHORIZATIONS, "envelope", _of_authorization, is_secret=True),
    ),
    principals={GRANTS: "principal", AUTHORIZATIONS: "principal"},
)

_g, _a = GRANTS.c, AUTHORIZATIONS.c
_IS_OWNERS = [_g[name] == bindparam(name) for name in _OWNER]
_ONE, _VERSION = GRANTS.select().where(*_IS_OWNERS), select(_g.version).where(*_IS_OWNERS)
_OF_PRINCIPAL = GRANTS.select().where(_g.principal == bindparam("principal"))
_BY_STATE = AUTHORIZATIONS.select().where(_a.state == bindparam("state"), _a.expires_at > bindparam("now"))
_OPEN = AUTHORIZATIONS.select().where(
    *(_a[name] == bindparam(name) for name in _OWNER), _a.expires_at > bindparam("now")
)


class DatabaseVault:
    """A Vault in *store*. What was decrypted is kept in memory until any process changes that grant.

    Each use asks the store for that: on SQLite whether anything was written, and if so the version of the grant, on
    PostgreSQL its version. So a grant that any process revokes is given to no call that begins after that.

    A process that is killed during a refresh keeps others from it for *lease_s* seconds.
    """

    def __init__(self, store: Store, *, lease_s: float = 15.0) -> None:
        self._store = store
        self._leases = Leases(store)
        self._lease_s = lease_s
        self._holder = secrets.token_hex(8)
        # With what `changes` returned before it was read.
        self._cached: dict[Owner, tuple[StoredGrant, int | None]] = {}
        store.use(AUTH)

    async def get(self, owner: Owner, /) -> StoredGrant | None:
        at = self._store.changes()
        if (cached := self._cached.get(owner)) is not None:
            stored_grant, cached_at = cached
            if at is not None and at == cached_at:
                return stored_grant
            rows = await self._store.read(_VERSION, _key(owner))
            if rows and rows[0]["version"] == stored_grant.version:
                self._cached[owner] = stored_grant, at
                return stored_grant
        rows = await self._store.read(_ONE, _key(owner))
        if not rows:
            self._cached.pop(owner, None)
            return None
        stored_grant = self._opened(rows[0])
        if len(self._cached) >= MAX_CACHED:
            self._cached.clear()
        self._cached[owner] = stored_grant, at
        return stored_grant

    async def put(self, owner: Owner, grant: Grant, /, *, version: int | None) -> bool:
        # Random, and not a count: a grant that was removed and made again is another one.
        row = {**_key(owner), "version": secrets.randbits(62)}
        row["envelope"] = self._store.keys.seal(grant.to_bytes(), *_of_grant(row))

        def put(connection: Connection) -> bool:
            if version is None:
                insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(GRANTS)
                insertion = insert.values(row).on_conflict_do_nothing().returning(_g.version)  # psycopg counts no rows
                return connection.execute(insertion).first() is not None
            update = GRANTS.update().where(*(_g[name] == row[name] for name in _OWNER), _g.version == version)
            return connection.execute(update.values(version=row["version"], envelope=row["envelope"])).rowcount == 1

        return await self._store.transact(put)

    async def remove(self, owner: Owner, /, *, version: int | None = None) -> bool:
        delete = GRANTS.delete().where(*(_g[name] == value for name, value in _key(owner).items()))
        delete = delete if version is None else delete.where(_g.version == version)
        return await self._store.transact(lambda connection: connection.execute(delete).rowcount == 1)

    async def owned_by(self, principal: str, /) -> Sequence[tuple[Owner, Grant | None]]:
        grants: list[tuple[Owner, Grant | None]] = []
        for row in await self._store.read(_OF_PRINCIPAL, {"principal": encode_name(principal)}):
            try:
                owner = Owner(*(decode_name(row[name]) for name in _OWNER))
            except ValueError as error:
                log_failure("A stored grant has no owner, and is skipped", error, None)
                continue
            try:
                grants.append((owner, self._opened(row).grant))
            except StoreError as error:
                _log.warning("What is stored for '%s' cannot be opened: %s", display_name(owner.provider), error)
                grants.append((owner, None))
        return grants

    @asynccontextmanager
    async def alone(self, owner: Owner, /) -> AsyncGenerator[None]:
        name = f"grant {_digest(owner.binding).hex()}"
        holder = f"{self._holder}-{secrets.token_hex(4)}"
        async with self._leases.hold(name, holder, for_s=self._lease_s, wait_s=_REFRESH_TIMEOUT_S) as lease:
            if lease is None:
                raise StoreError("Another process has been refreshing this grant for too long.")
            renewing = asyncio.ensure_future(self._renew(lease))
            try:
                yield
            finally:
                renewing.cancel()

    async def _renew(self, lease: Lease) -> None:
        with suppress(StoreError):  # what is written at the end fails then, or is compared
            while True:
                await asyncio.sleep(self._lease_s / 3)
                if not await self._leases.renew(lease, for_s=self._lease_s):
                    return

    async def open(self, authorization: Authorization, /, *, now: datetime) -> Authorization:
        row = self._row(authorization)

        def insert(connection: Connection) -> Authorization:
            values = {**_key(authorization.owner), "now": encode_time(now)}
            for existing in connection.execute(_OPEN, values).mappings():
                if existing["question"] == row["question"] and (waiting := self._read(existing)) is not None:
                    return waiting
            connection.execute(AUTHORIZATIONS.delete().where(_a.expires_at <= encode_time(now)))
            connection.execute(AUTHORIZATIONS.insert(), row)
            return authorization

        return await self._store.transact(insert, lock=_digest(authorization.owner.binding)[:7])

    async def find(self, state: str, /, *, now: datetime) -> Authorization | None:
        rows = await self._store.read(_BY_STATE, {"state": text_digest(state), "now": encode_time(now)})
        authorization = self._read(rows[0]) if rows else None
        return authorization if authorization is not None and authorization.state == state else None

    async def close(self, authorization: Authorization, /) -> bool:
        delete = AUTHORIZATIONS.delete().where(_a.state == text_digest(authorization.state))
        return await self._store.transact(lambda connection: connection.execute(delete).rowcount == 1)

    async def authorizations(self, owner: Owner, /, *, now: datetime) -> Sequence[Authorization]:
        rows = await self._store.read(_OPEN, {**_key(owner), "now": encode_time(now)})
        return [authorization for row in rows if (authorization := self._read(row)) is not None]

    def __repr__(self) -> str:
        return f"<DatabaseVault in {self._store.place}>"

    def _opened(self, row: Mapping[Any, Any]) -> StoredGrant:
        try:
            envelope, version = decode_bytes(row["envelope"]), int(row["version"])
        except (ValueError, TypeError):
            raise StoreError("A stored grant is damaged. Revoke it, and log in again.") from None
        return StoredGrant(Grant.from_bytes(self._store.keys.unseal(envelope, *_of_grant(row))), version)

    def _row(self, authorization: Authorization) -> dict[str, Any]:
        row = {
            **_key(authorization.owner),
            "state": text_digest(authorization.state),
            "question": _digest([sorted(authorization.scopes), authorization.redirect_uri]).hex(),
            "expires_at": encode_time(authorization.expires_at),
        }
        names = ("id", "thread", "scopes", "url", "state", "verifier", "redirect_uri")
        data = {name: getattr(authorization, name) for name in names}
        data |= {"owner": authorization.owner.binding, "expires_at": authorization.expires_at.isoformat()}
        row["envelope"] = self._store.keys.seal(json.dumps(data).encode(), *_of_authorization(row))
        return row

    def _read(self, row: Mapping[Any, Any]) -> Authorization | None:
        try:
            data = json.loads(self._store.keys.unseal(decode_bytes(row["envelope"]), *_of_authorization(row)))
            data |= {"owner": Owner(*data["owner"]), "expires_at": datetime.fromisoformat(data["expires_at"])}
            return replace(Authorization(**data), scopes=tuple(data["scopes"]))
        except (StoreError, ValueError, TypeError, KeyError) as error:
            log_failure("A stored authorization cannot be read, and is skipped", error, None)
            return None


def _key(owner: Owner) -> dict[str, Any]:
    return {name: encode_name(value) for name, value in zip(_OWNER, owner.binding, strict=True)}


def _digest(data: Any) -> bytes:
    return hashlib.sha256(json.dumps(data).encode()).digest()
