"""The network between one process and PostgreSQL: a proxy on loopback whose connections are cut, or stand still."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import URL, make_url

SECURE_NO = {"sslmode": "disable", "gssencmode": "disable"}


@dataclass(eq=False)
class Connection:
    """One connection through a wire."""

    ends: tuple[asyncio.StreamWriter, asyncio.StreamWriter]
    may_pass: asyncio.Event = field(default_factory=asyncio.Event)
    is_trapped: bool = False
    is_deaf: bool = False

    def cut(self) -> None:
        self.may_pass.set()
        for end in self.ends:
            end.transport.abort()


@dataclass(eq=False)
class Wire:
    """What a process reaches the database at *url* by. *name* is the application of its connections."""

    url: str
    connections: set[Connection] = field(default_factory=set[Connection])
    is_down: bool = False
    trap: bytes | None = None
    """Where a statement has these words, the end of its transaction is in the hands of `holds`."""
    holds: bool = False
    """Whether the `COMMIT` is held up; else the connection breaks off."""
    loses: bool = False
    """Whether it breaks off before the `COMMIT`; else before its answer."""
    is_sprung: asyncio.Event = field(default_factory=asyncio.Event)

    def cut(self) -> None:
        for connection in [*self.connections]:
            connection.cut()

    async def _serve(self, server: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.is_down:
            writer.transport.abort()
            return
        answers, requests = await asyncio.open_unix_connection(server)
        connection = Connection((writer, requests))
        connection.may_pass.set()
        self.connections.add(connection)
        try:
            with suppress(OSError):
                both = (self._pass_on(connection, reader, requests), self._pass_back(connection, answers, writer))
                await asyncio.gather(*both)
        finally:
            self.connections.discard(connection)
            connection.cut()

    async def _pass_on(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while data := await reader.read(65_536):
            if self.trap is not None and self.trap in data:
                self.trap, connection.is_trapped = None, True
            if connection.is_trapped and b"COMMIT" in data:
                connection.is_trapped, connection.is_deaf = False, not self.holds
                if self.holds:
                    connection.may_pass.clear()
                self.is_sprung.set()
                if self.loses:
                    break
            await connection.may_pass.wait()
            writer.write(data)
            await writer.drain()
        connection.cut()

    async def _pass_back(
        self, connection: Connection, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while (data := await reader.read(65_536)) and not connection.is_deaf:
            await connection.may_pass.wait()
            writer.write(data)
            await writer.drain()
        connection.cut()


@asynccontextmanager
async def wire(url: str, name: str) -> AsyncGenerator[Wire]:
    """Give a wire to the database at *url*, which listens on a socket of files."""
    database = make_url(url)
    server = f"{database.query['host']}/.s.PGSQL.5432"
    made = Wire("")
    serving: set[asyncio.Task[None]] = set()

    def serve(*ends: Any) -> None:
        serving.add(task := asyncio.create_task(made._serve(server, *ends)))
        task.add_done_callback(serving.discard)

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    query = {**SECURE_NO, "application_name": name}
    made.url = URL.create(
        "postgresql", database.username, None, "127.0.0.1", port, database.database, query
    ).render_as_string(hide_password=False)
    try:
        yield made
    finally:
        listening.close()
        made.cut()
        await asyncio.gather(*serving)
