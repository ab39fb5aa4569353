"""Who is at a browser: sessions, and the links that begin one. Both are rows of the store, which can be revoked.

A browser has a token of 256 random bits in a cookie. The store has its hash, and whose it is, sealed.
"""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

from sqlalchemy import Connection, RowMapping, bindparam

from ...core import Caller, StoreError
from ...machinery import log_failure
from ...store import Store
from ...store.tables import Schema, Sealed, decode_bytes, decode_name, decode_time, encode_name, encode_time, table

SESSION_AGE = timedelta(hours=12)
LINK_AGE = timedelta(minutes=5)
FLOW_AGE = timedelta(minutes=10)
THREAD = "console"
"""The thread of the calls that a person makes by hand."""

TABLE = table("toolcrib_sessions", *("id", "principal", "expires_at", "envelope"), key=("id",))


def _of_session(row: Mapping[str, Any]) -> tuple[str, ...]:
    return "session", *(str(row[name]) for name in ("id", "principal", "expires_at"))


SESSIONS = Schema(
    "sessions",
    [
        (
            """CREATE TABLE toolcrib_sessions (
                id TEXT PRIMARY KEY, principal TEXT NOT NULL, expires_at BIGINT NOT NULL, envelope {bytes} NOT NULL)""",
        ),
    ],
    sealed=(Sealed(TABLE, "envelope", _of_session, is_secret=True),),
    principals={TABLE: "principal"},
)
_FIND = TABLE.select().where(TABLE.c.id == bindparam("id"))


@dataclass(frozen=True, slots=True)
class Session:
    """A browser in which *caller* has logged in, at the server of *origin*, *by* a key's id, or an issuer."""

    caller: Caller
    origin: str
    by: str | None
    expires_at: datetime


class Sessions:
    """The sessions and links in *store*, for all processes that share it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        store.use(SESSIONS)

    async def link(self, base_url: str) -> str:
        """Return a URL of the console at *base_url* that lets in the person at this computer, once, for 5 minutes."""
        token = await self._add(Session(Caller(), base_url, None, datetime.now(UTC) + LINK_AGE), "link")
        return f"{base_url}/login?link={token}"

    async def begin(self, caller: Caller, origin: str, *, by: str | None = None) -> str:
        """Return the token of a new session."""
        return await self._add(Session(caller, origin, by, datetime.now(UTC) + SESSION_AGE), "session")

    async def find(self, token: str, origin: str) -> Session | None:
        """Return the session with *token* at the server of *origin*; None where there is none. Raises StoreError."""
        rows = await self._store.read(_FIND, {"id": _id("session", token)})
        return self._opened(rows[0], origin) if rows else None

    async def follow_link(self, token: str, origin: str) -> Session | None:
        """Return the session that a link begins, which is used by that; None where there is no such link."""
        row = await self._remove(_id("link", token))
        return None if row is None else self._opened(row, origin)

    async def end(self, token: str) -> None:
        await self._remove(_id("session", token))

    def sealed(self, data: Mapping[str, str], origin: str) -> str:
        """Return *data* for a cookie of the server of *origin*: before a login, nothing is stored."""
        content = {**data, "until": encode_time(datetime.now(UTC) + FLOW_AGE)}
        envelope = self._store.keys.seal(json.dumps(content).encode(), "login", origin)
        return urlsafe_b64encode(envelope).decode().rstrip("=")

    def unsealed(self, text: str, origin: str) -> Mapping[str, str] | None:
        """Return the data of `sealed`, for ten minutes; None where there is none."""
        try:
            content = json.loads(self._store.keys.unseal(urlsafe_b64decode(f"{text}=="), "login", origin))
        except (StoreError, ValueError):
            return None
        return content if content["until"] > encode_time(datetime.now(UTC)) else None

    async def use(self, state: str) -> bool:
        """Return whether *state*, of a login that is open for ten minutes, was never used before."""
        return await self._add(Session(Caller(), "", None, datetime.now(UTC) + FLOW_AGE), "state", state) != ""

    async def _add(self, session: Session, kind: str, token: str = "") -> str:
        """Store *session* under *token*, else a new one. Returns it; "" where there is such a row already."""
        token = token or token_urlsafe(32)
        caller = session.caller
        groups, claims = sorted(caller.groups), sorted(caller.claims)
        data = {"groups": groups, "claims": claims, "origin": session.origin, "key": session.by}
        row: dict[str, Any] = {
            "id": _id(kind, token),
            "principal": encode_name(caller.principal),
            "expires_at": encode_time(session.expires_at),
        }
        row["envelope"] = self._store.keys.seal(json.dumps(data).encode(), *_of_session(row))

        def insert(connection: Connection) -> bool:
            connection.execute(TABLE.delete().where(TABLE.c.expires_at <= encode_time(datetime.now(UTC))))
            is_new = connection.execute(_FIND, {"id": row["id"]}).one_or_none() is None
            if is_new:
                connection.execute(TABLE.insert(), row)
            return is_new

        return token if await self._store.transact(insert) else ""

    async def _remove(self, id: str) -> RowMapping | None:  # noqa: A002
        def remove(connection: Connection) -> RowMapping | None:
            row = connection.execute(_FIND, {"id": id}).mappings().one_or_none()
            count = connection.execute(TABLE.delete().where(TABLE.c.id == id)).rowcount
            return row if count else None

        return await self._store.transact(remove)

    def _opened(self, row: Any, origin: str) -> Session | None:
        try:
            data = json.loads(self._store.keys.unseal(decode_bytes(row["envelope"]), *_of_session(row)))
            claims = frozenset((str(name), str(value)) for name, value in data["claims"])
            principal, groups = decode_name(row["principal"]), frozenset(map(str, data["groups"]))
            caller = Caller(principal, thread=THREAD, groups=groups, claims=claims)
            session = Session(caller, data["origin"], data["key"], decode_time(row["expires_at"]))
        except (StoreError, ValueError, TypeError, KeyError) as error:
            log_failure("A session of the console in the store cannot be opened", error, None)
            return None
        return session if session.origin == origin and session.expires_at > datetime.now(UTC) else None

    def __repr__(self) -> str:
        return f"<Sessions in {self._store.place}>"


def _id(kind: str, token: str) -> str:
    return sha256(f"toolcrib {kind}\0{token}".encode(errors="replace")).hexdigest()
