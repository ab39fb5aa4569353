"""A ResultStore in a database: large results survive a restart, and are sealed for the caller they belong to."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, bindparam, select

from ..core import SetupError, StoreError, content_from_dict, content_to_dict
from ..machinery import StoredResult
from .tables import RESULTS, decode_bytes, decode_name, decode_time, encode_name, encode_time, of_result

if TYPE_CHECKING:
    from .database import Database

_t = RESULTS.c

_FIND = RESULTS.select().where(
    *(_t.handle == bindparam("handle"), _t.principal == bindparam("principal"), _t.thread == bindparam("thread")),
    _t.expires_at > bindparam("now"),
)


class DatabaseResults:
    """A ResultStore in *store*: of each principal at most *max_count* results and *max_bytes*, for *max_age_s* seconds.

    A principal's oldest make room for their newest, and never for another's. *clock* gives aware datetimes.
    """

    def __init__(
        self,
        store: "Database",
        *,
        max_bytes: int = 64 * 1024 * 1024,
        max_count: int = 200,
        max_age_s: float = 24 * 3600.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        if max_bytes < 1 or max_count < 1 or not max_age_s > 0:
            raise SetupError("The bounds of DatabaseResults, max_bytes, max_count and max_age_s, are above 0.")
        self._store = store
        self._max_bytes = max_bytes
        self._max_count = max_count
        self._max_age = timedelta(seconds=max_age_s)
        self._clock = clock

    async def store(self, stored: StoredResult, /) -> bool:
        size, now = stored.size_bytes, self._clock()
        if size > self._max_bytes:
            return False

        def put(connection: Connection) -> None:
            row = self._row(stored, size, now)
            connection.execute(
                RESULTS.delete().where((_t.expires_at <= encode_time(now)) | (_t.handle == row["handle"]))
            )
            self._make_room(connection, row["principal"], size)
            connection.execute(RESULTS.insert(), row)

        await self._store.transact(put)
        return True

    async def find(self, handle: str, principal: str, thread: str, /) -> StoredResult | None:
        names = {"handle": handle, "principal": principal, "thread": thread}
        values = {name: encode_name(text) for name, text in names.items()} | {"now": encode_time(self._clock())}

        def find(connection: Connection) -> StoredResult | None:
            row = connection.execute(_FIND, values).mappings().one_or_none()
            return None if row is None else self._decode(row, handle, principal, thread)

        return await self._store.transact(find, write=False)

    def __repr__(self) -> str:
        return f"<DatabaseResults in {self._store.place}>"

    def _row(self, stored: StoredResult, size: int, now: datetime) -> dict[str, Any]:
        row: dict[str, Any] = {
            "handle": encode_name(stored.handle),
            "principal": encode_name(stored.principal),
            "thread": encode_name(stored.thread),
            "tool": encode_name(stored.tool),
            "stored_at": encode_time(stored.stored_at),
            "expires_at": encode_time(now + self._max_age),
            "size_bytes": size,
        }
        content: Any = [content_to_dict(part, exact=True) for part in stored.content]
        if stored.labels:
            content = {"content": content, "labels": sorted(stored.labels)}
        data = json.dumps(content).encode()
        return row | {"content": self._store.keys.seal(data, *of_result(row))}

    def _decode(self, row: Any, handle: str, principal: str, thread: str) -> StoredResult:
        try:
            data = json.loads(self._store.keys.unseal(decode_bytes(row["content"]), *of_result(row)))
            parts, labels = (data["content"], data["labels"]) if isinstance(data, dict) else (data, ())
            content = tuple(content_from_dict(part) for part in parts)
            tool, stored_at = decode_name(row["tool"]), decode_time(row["stored_at"])
            return StoredResult(handle, principal, thread, tool, content, stored_at, frozenset(map(str, labels)))
        except (ValueError, TypeError, KeyError, RecursionError):
            raise StoreError(f"A result in the store {self._store.place} is damaged.") from None

    def _make_room(self, connection: Connection, principal: str, size: int) -> None:
        rows = select(_t.number, _t.size_bytes).where(_t.principal == principal).order_by(_t.number.desc())
        count, total, last = 1, size, None
        for number, row_bytes in connection.execute(rows):
            count, total = count + 1, total + int(row_bytes)
            if count > self._max_count or total > self._max_bytes:
                last = number
                break
        if last is not None:
            connection.execute(RESULTS.delete().where(_t.principal == principal, _t.number <= last))
