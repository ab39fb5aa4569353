"""Keys of principals. A key is shown once, when it is made; of it the store has a hash only, sealed.

A key is `toolcrib_ID_SECRET`: the id finds its row, and the fixed beginning is what scanners for secrets look for
(`toolcrib_[a-z0-9]{12}_[A-Za-z0-9]{43}`). The envelope of a hash is bound to whose key it is, to its groups and its
expiry: a row that is changed in the database is not accepted.

Keys of one name are one principal, for as long as there is one of them. A key that is made after that is of another
principal, who inherits nothing: behind its name is the id of the first key. Rules and people know both by the name.
"""

import asyncio
import hashlib
import hmac
import json
import re
import secrets
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import Connection, bindparam, select

from ...core import Caller, SetupError, StoreError
from ...machinery import log_failure
from ...schema import display_name
from ...store import Store
from ...store.tables import Schema, Sealed, decode_bytes, decode_time, encode_time, table

_KEY = re.compile(r"toolcrib_(?P<id>[a-z0-9]{12})_[A-Za-z0-9]{43}")  # 43 letters have 256 bits
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,63}")
_NOTED_EVERY = timedelta(minutes=1)

_TABLE = table(
    "toolcrib_keys",
    *("id", "name", "groups", "created_at", "expires_at", "last_used_at", "envelope", "origin"),
    key=("id",),
)
_RETIRED = table("toolcrib_key_names", "name", key=("name",))


def _of_key(row: Mapping[str, Any]) -> tuple[str, ...]:
    origin = () if row["origin"] is None else (str(row["origin"]),)
    return ("key", *(str(row[name]) for name in ("id", "name", "groups", "created_at", "expires_at")), *origin)


KEYS = Schema(
    "keys",
    [
        (
            """CREATE TABLE toolcrib_keys (
                id TEXT PRIMARY KEY, name TEXT NOT NULL, groups TEXT NOT NULL, created_at BIGINT NOT NULL,
                expires_at BIGINT, last_used_at BIGINT, envelope {bytes} NOT NULL)""",
        ),
        (
            "ALTER TABLE toolcrib_keys ADD COLUMN origin TEXT",
            "CREATE TABLE toolcrib_key_names (name TEXT PRIMARY KEY)",
        ),
    ],
    sealed=(Sealed(_TABLE, "envelope", _of_key, is_secret=True),),
    principals={_TABLE: None, _RETIRED: None},  # they make who a principal is, and are revoked
)
_ALL = _TABLE.select().order_by(_TABLE.c.created_at, _TABLE.c.id)
_FIND = _TABLE.select().where(_TABLE.c.id == bindparam("id"))


@dataclass(frozen=True, slots=True)
class AccessKey:
    """What is known of a key: all but the key itself. *last_used_at* is exact to a minute.

    *origin* is the id of the first key of its principal, where others had the name before.
    """

    id: str
    name: str
    groups: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None = None
    last_used_at: datetime | None = None
    origin: str | None = None

    @property
    def principal(self) -> str:
        """`key:NAME`, or `key:NAME#ORIGIN`, which no issuer can name."""
        return f"key:{self.name}" if self.origin is None else f"key:{self.name}#{self.origin}"

    @property
    def caller(self) -> Caller:
        return Caller(self.principal, groups=frozenset(self.groups))

    def to_dict(self) -> dict[str, Any]:
        """Return as JSON data; moments are in ISO 8601."""
        moments = {name: getattr(self, name) for name in ("created_at", "expires_at", "last_used_at")}
        return {
            "id": self.id,
            "name": self.name,
            "principal": self.principal,
            "groups": list(self.groups),
            **{name: None if at is None else at.isoformat() for name, at in moments.items()},
        }


class AccessKeys:
    """The keys in *store*, for all processes that share it. What is revoked ends with the next request."""

    def __init__(self, store: Store, *, clock: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._store = store
        self._clock = clock
        self._noted: dict[str, datetime] = {}
        self._noting: set[asyncio.Task[None]] = set()
        store.use(KEYS)

    async def add(
        self, name: str, *, groups: Iterable[str] = (), expires_at: datetime | None = None
    ) -> tuple[str, AccessKey]:
        """Return a new key of *name*: its text, which is nowhere else, and what is stored. Raises SetupError.

        It is of the principal of the other keys of that name; where all of these were revoked, of a new one.
        """
        names = sorted({*groups})
        if not _NAME.fullmatch(name):
            raise SetupError(
                f"'{display_name(name)}' cannot be the name of a key's owner: it has at most 64 letters (A-Z, a-z), "
                "digits and '._@+-', and begins with a letter or a digit."
            )
        if not all(0 < len(group) <= 200 and group.isprintable() for group in names) or len(names) > 100:
            raise SetupError("A key has at most 100 groups, each with a printable name of at most 200 characters.")
        now = self._clock()
        if expires_at is not None and expires_at <= now:
            raise SetupError("The expiry of a key must be in the future.")
        key_id = _random(string.ascii_lowercase + string.digits, 12)
        text = f"toolcrib_{key_id}_{_random(string.ascii_letters + string.digits, 43)}"
        row: dict[str, Any] = {
            "id": key_id,
            "name": name,
            "groups": json.dumps(names),
            "created_at": encode_time(now),
            "expires_at": None if expires_at is None else encode_time(expires_at),
            "last_used_at": None,
        }

        def insert(connection: Connection) -> AccessKey:
            origins = connection.execute(select(_TABLE.c.origin).where(_TABLE.c.name == name)).scalars().all()
            is_retired = connection.execute(_RETIRED.select().where(_RETIRED.c.name == name)).first() is not None
            row["origin"] = origins[0] if origins else key_id if is_retired else None
            envelope = self._store.keys.seal(_digest(text), *_of_key(row))
            connection.execute(_TABLE.insert(), row | {"envelope": envelope})
            return _decoded(row)

        return text, await self._store.transact(insert, lock=b"keys")

    async def all(self) -> Sequence[AccessKey]:
        """Return the keys that there are, the oldest first. A damaged row is logged and left out."""
        keys: list[AccessKey] = []
        for row in await self._store.read(_ALL):
            try:
                keys.append(_decoded(row))
            except (ValueError, TypeError) as error:
                log_failure("A key in the store is damaged", error, None)
        return keys

    async def revoke(self, key_id: str) -> bool:
        """Return whether there was such a key, which is not accepted from now on."""

        def delete(connection: Connection) -> bool:
            is_it = _TABLE.c.id == key_id
            names = connection.execute(select(_TABLE.c.name).where(is_it)).scalars().all()
            for name in names:
                connection.execute(_TABLE.delete().where(is_it))
                # The next key of this name may belong to another person.
                connection.execute(_RETIRED.delete().where(_RETIRED.c.name == name))
                connection.execute(_RETIRED.insert(), {"name": name})
            return bool(names)

        return await self._store.transact(delete, lock=b"keys")

    async def find(self, text: str) -> AccessKey | None:
        """Return the key that *text* is; None where it is none, was revoked or has expired. Raises StoreError."""
        if (parts := _KEY.fullmatch(text)) is None:
            return None
        rows = await self._store.read(_FIND, {"id": parts["id"]})
        if not rows:
            return None
        try:
            key = _decoded(rows[0])
            expected = self._store.keys.unseal(decode_bytes(rows[0]["envelope"]), *_of_key(rows[0]))
        except (StoreError, ValueError, TypeError) as error:
            log_failure(f"The key {parts['id']} in the store cannot be opened", error, None)
            return None
        now = self._clock()
        is_same = hmac.compare_digest(_digest(text), expected)
        if not is_same or (key.expires_at is not None and key.expires_at <= now):
            return None
        self._note(key, now)
        return key

    async def get(self, key_id: str) -> AccessKey | None:
        """Return the key with this id; None where it was revoked or has expired. Raises StoreError."""
        keys = [_decoded(row) for row in await self._store.read(_FIND, {"id": key_id})]
        return next((key for key in keys if key.expires_at is None or key.expires_at > self._clock()), None)

    def _note(self, key: AccessKey, now: datetime) -> None:
        last = self._noted.get(key.id, key.last_used_at)
        if last is not None and now - last < _NOTED_EVERY:
            return
        self._noted[key.id] = now
        task = asyncio.create_task(self._write_use(key.id, now))  # the request does not wait for it
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _write_use(self, key_id: str, now: datetime) -> None:
        update = _TABLE.update().where(_TABLE.c.id == key_id).values(last_used_at=encode_time(now))
        try:
            await self._store.transact(lambda connection: connection.execute(update).rowcount)
        except StoreError as error:
            log_failure("The last use of a key could not be noted", error, None)

    def __repr__(self) -> str:
        return f"<AccessKeys in {self._store.place}>"


def _random(letters: str, length: int) -> str:
    return "".join(secrets.choice(letters) for _ in range(length))


def _digest(text: str) -> bytes:
    # No slow hash: 256 random bits cannot be guessed.
    return hashlib.sha256(b"toolcrib key\0" + text.encode()).digest()


def _decoded(row: Mapping[str, Any]) -> AccessKey:
    moments = (row["expires_at"], row["last_used_at"])
    expires_at, last_used_at = (None if at is None else decode_time(at) for at in moments)
    groups = tuple(str(group) for group in json.loads(row["groups"]))
    return AccessKey(
        row["id"], row["name"], groups, decode_time(row["created_at"]), expires_at, last_used_at, row["origin"]
    )
