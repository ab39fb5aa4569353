"""Runs of the command in processes that are forked from one which has loaded it: a start costs no import.

`python forks.py SOCKET` waits there. Each connection brings the arguments, the folder, the environment and the three
standard streams of a run, and is answered with its exit status.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile

FDS = 3


def serve(path: str) -> None:
    """Fork for each connection. Returns in a process that is to be the command."""
    import toolcrib.auth
    import toolcrib.cli.app
    import toolcrib.schema
    import toolcrib.store
    import toolcrib.workbench.config
    import toolcrib.workbench.credentials
    import toolcrib.workbench.settings  # noqa: F401

    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(path)
        listening.listen()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
        while True:
            connection, _ = listening.accept()
            if os.fork() == 0:
                listening.close()
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wanted, streams = _receive(connection)
    if child := os.fork():
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())
        os._exit(0)
    connection.close()
    _become(wanted, streams)


def run(
    path: str, arguments: Sequence[str | bytes], folder: Path, environment: Mapping[str, str], typed: bytes
) -> subprocess.CompletedProcess[str]:
    """Run the command with *arguments* by what waits at *path*, as `subprocess.run` would."""
    texts = [os.fsdecode(argument) for argument in arguments]
    data = json.dumps({"arguments": texts, "folder": str(folder), "environment": dict(environment)}).encode()
    with ExitStack() as stack:
        files = [stack.enter_context(TemporaryFile()) for _ in range(FDS)]
        files[0].write(typed)
        files[0].seek(0)
        connection = stack.enter_context(socket.socket(socket.AF_UNIX))
        connection.settimeout(60)
        connection.connect(path)
        socket.send_fds(connection, [len(data).to_bytes(8)], [file.fileno() for file in files])
        connection.sendall(data)
        status = int(connection.recv(16))
        written = []
        for file in files[1:]:
            file.seek(0)
            written.append(file.read().decode())
        return subprocess.CompletedProcess(texts, status, *written)


def _receive(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, 8, FDS)
    size, data = int.from_bytes(head), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return json.loads(data), list(streams)


def _become(wanted: dict[str, object], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.chdir(os.fsencode(str(wanted["folder"])))
    os.environb.clear()
    environment: dict[str, str] = wanted["environment"]  # type: ignore[assignment]
    os.environ.update(environment)
    arguments: list[str] = wanted["arguments"]  # type: ignore[assignment]
    sys.argv = ["toolcrib", *arguments]
    sys.path[0] = os.getcwd()
    sys.stdin = open(0, encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stdout = open(1, "w", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", errors="backslashreplace")  # noqa: SIM115


if __name__ == "__main__":
    serve(sys.argv[1])
    from toolcrib.cli import main

    raise SystemExit(main())
