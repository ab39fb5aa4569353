"""What a store has of one principal, over the tables of all rooms: count it, export it, forget it.

A table takes part by its declaration in `Schema.principals` alone. Work is done in batches, between which others write.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, Table, func, select, tuple_

from ..core import StoreError
from .events import EVENTS
from .tables import BATCH, Schema, Sealed, decode_bytes, decode_name, decode_time, encode_name

if TYPE_CHECKING:
    from .database import Database, Row

_log = logging.getLogger("toolcrib")

_PAUSE_S = 0.005
"""How long other processes may write before the next batch."""

Progress = Callable[[str, int], object]
"""Is called with the name of a table and the number of rows that were done."""


async def count(store: "Database", principal: str, schemas: Sequence[Schema] | None = None) -> dict[str, int]:
    """Return how many rows of each table, or of those of *schemas*, are of *principal*. Raises StoreError."""
    counts: dict[str, int] = {}
    for table, owner in _owned(schemas or store.schemas):
        query = select(func.count().label("number")).select_from(table).where(owner == encode_name(principal))
        (row,) = await store.fetch(query)
        counts[_name(table)] = row["number"]
    return counts


async def export(
    store: "Database", principal: str, progress: Progress, schemas: Sequence[Schema] | None = None
) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of *principal* as JSON data, by table, opened but for the secrets of the vault.

    What does not open is null, and is logged. Raises StoreError.
    """
    tables: dict[str, list[dict[str, Any]]] = {}
    for table, owner in _owned(schemas or store.schemas):
        key, data = list(table.primary_key), tables.setdefault(_name(table), [])
        query = table.select().where(owner == encode_name(principal)).order_by(*key).limit(BATCH)
        rows = await store.fetch(query)
        while rows:
            data += await asyncio.to_thread(partial(_data, store, table, rows))
            progress(_name(table), len(data))
            after = query.where(tuple_(*key) > tuple_(*(rows[-1][part.name] for part in key)))
            rows = await store.fetch(after)
    return tables


async def forget(
    store: "Database", principal: str, progress: Progress, schemas: Sequence[Schema] | None = None
) -> dict[str, int]:
    """Delete the rows of *principal*, and return how many of each table they were. Raises StoreError."""
    counts: dict[str, int] = {}
    for table, owner in _owned(schemas or store.schemas):
        name, key = _name(table), list(table.primary_key)
        first_rows = select(*key).where(owner == encode_name(principal)).limit(BATCH)
        delete, counts[name] = table.delete().where(tuple_(*key).in_(first_rows)), 0
        last = 0
        while True:
            if table is EVENTS:  # their hashes stay, so that the chain can be verified
                stub = partial(store.events.forget, principal=principal, after=last, most=BATCH)
                number, last = await store.transact(stub)
            else:
                number = await store.execute(delete)
            if not number:
                break
            counts[name] += number
            progress(name, counts[name])
            await asyncio.sleep(_PAUSE_S)
    return counts


def _owned(schemas: Sequence[Schema]) -> Iterator[tuple[Table, Column[Any]]]:
    for schema in schemas:
        for table, column in schema.principals.items():
            if column is not None:
                yield table, table.c[column]


def _name(table: Table) -> str:
    return table.name.removeprefix("toolcrib_")


def _data(store: "Database", table: Table, rows: "Sequence[Row]") -> list[dict[str, Any]]:
    envelopes = {item.column: item for schema in store.schemas for item in schema.sealed if item.table is table}
    names = [
        column.name for column in table.columns if column.name not in envelopes or not envelopes[column.name].is_secret
    ]
    return [
        {name: _opened(store, envelopes[name], row) if name in envelopes else _clear(name, row[name]) for name in names}
        for row in rows
    ]


def _opened(store: "Database", sealed: Sealed, row: "Row") -> Any:
    if row[sealed.column] is None:
        return None
    try:
        return json.loads(store.keys.unseal(decode_bytes(row[sealed.column]), *sealed.binding(row)))
    except (StoreError, ValueError, RecursionError) as error:
        _log.warning("What is sealed in a row of %s cannot be opened: %s", sealed.table.name, error)
        return None


def _clear(name: str, value: Any) -> Any:
    try:
        if name.endswith("_at") and value is not None:
            return decode_time(value).isoformat()
        return decode_name(value) if isinstance(value, str) else value if isinstance(value, int | None) else str(value)
    except ValueError:
        return str(value)
