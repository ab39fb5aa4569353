"""Tools over a database of orders. Refunds are destructive: see toolcrib.toml."""

import sqlite3
from collections.abc import Iterator
from typing import Annotated

from toolcrib import Depends, tool


def connect() -> Iterator[sqlite3.Connection]:
    database = sqlite3.connect("orders.db", isolation_level=None, check_same_thread=False)
    database.execute("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, city TEXT, total REAL, refunded REAL)")
    database.execute("INSERT OR IGNORE INTO orders VALUES (1, 'Oslo', 12.5, 0)")
    yield database
    database.close()


Database = Annotated[sqlite3.Connection, Depends(connect, scope="call")]


@tool(read_only=True)
def find_orders(database: Database, city: str) -> list[tuple[int, float, float]]:
    """Find the orders of a city: id, total, and what was refunded."""
    return database.execute("SELECT id, total, refunded FROM orders WHERE city = ?", (city,)).fetchall()


@tool(destructive=True)
def refund(database: Database, order_id: int, amount: float) -> str:
    """Refund a part of an order."""
    database.execute("UPDATE orders SET refunded = refunded + ? WHERE id = ?", (amount, order_id))
    return f"refunded {amount}"
