"""Runs of the command, and of programs, in processes forked from one which has loaded it: a start costs no import.

`python forks.py SOCKET PROCESS` waits there until the process ends. Each connection brings the arguments, the folder,
the environment and the three standard streams of a run; each byte that follows is a signal for it. The answer is its
exit status. Where the connection ends before, so does the run. `shim` writes a program that stands for `toolcrib` on a
PATH, or for `python FILE`.
"""

import atexit
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from tempfile import TemporaryFile

FDS = 3

_SHIM = """\
#!{python} -ISE
import json, os, signal, socket, sys
if "--file" in {head!r} and sys.argv[1].startswith("-"):
    os.execv({python!r}, [{python!r}, *sys.argv[1:]])
connection = socket.socket(socket.AF_UNIX)
connection.connect({path!r})
ending = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
for number in ending:
    signal.signal(number, lambda number, _: connection.sendall(bytes([number])))
wanted = {{"arguments": [*{head!r}, *sys.argv[1:]], "folder": os.getcwd(), "environment": dict(os.environ)}}
data = json.dumps(wanted).encode()
socket.send_fds(connection, [len(data).to_bytes(8, "big")], [0, 1, 2])
connection.sendall(data)
os.close(0)  # whoever waits for the end of what it reads or writes waits for the run
os.close(1)
status = int(connection.recv(16))
if status < 0:
    signal.signal(-status, signal.SIG_DFL) if -status != signal.SIGKILL else None
    os.kill(os.getpid(), -status)
os._exit(status)
"""


def serve(path: str, process: int) -> None:
    """Fork for each connection. Returns in a process that is to be the command."""
    import encodings.utf_8_sig

    import griffe
    import jsonschema_rs
    import mcp
    import platformdirs
    import pydantic_settings
    import uvicorn

    import toolcrib.auth
    import toolcrib.cli.auth
    import toolcrib.cli.call
    import toolcrib.cli.calls
    import toolcrib.cli.chat
    import toolcrib.cli.check
    import toolcrib.cli.lock
    import toolcrib.cli.serving
    import toolcrib.cli.show
    import toolcrib.cli.tasks
    import toolcrib.cli.worker
    import toolcrib.durable
    import toolcrib.record
    import toolcrib.schema
    import toolcrib.serve
    import toolcrib.store
    import toolcrib.store.ciphers
    import toolcrib.workbench.config
    import toolcrib.workbench.credentials
    import toolcrib.workbench.settings

    # These run when a name of theirs is asked for.
    _ = (mcp.ClientSession, uvicorn.Config, jsonschema_rs.validator_for, toolcrib.auth.Flow)
    _ = (griffe.Docstring, platformdirs.PlatformDirs, pydantic_settings.BaseSettings, encodings.utf_8_sig.decode)
    _ = (toolcrib.serve.serve_http, toolcrib.serve.serve_stdio, toolcrib.serve.server, toolcrib.record.DatabaseCalls)
    gc.collect()
    gc.freeze()  # what is not looked at is not copied
    run = os.pidfd_open(process)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen(64)
        Path(f"{path}.new").rename(path)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those that answer
        while True:
            if run in select.select([listening, run], [], [])[0]:
                os._exit(0)
            connection, _ = listening.accept()
            if os.fork() == 0:
                os.close(run)
                listening.close()
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    wanted, streams = _receive(connection)
    if child := os.fork():
        for stream in streams:
            os.close(stream)
        threading.Thread(target=_answer, args=(connection, child), daemon=True).start()
        while number := connection.recv(1):
            _signal(child, number[0])
        _signal(child, signal.SIGKILL)
        signal.pause()  # until it is answered
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


def shim(path: str, file: Path, *head: str) -> Path:
    """Write to *file* a program that runs the command by what waits at *path*, with its own streams and signals.

    *head* comes before its arguments: with `--file`, it runs the Python file that the first of them names; with an
    option in its place, it is Python itself.
    """
    file.write_text(_SHIM.format(python=sys.executable, path=path, head=head))
    file.chmod(0o755)
    return file


def _receive(connection: socket.socket) -> tuple[dict[str, object], list[int]]:
    head, streams, _, _ = socket.recv_fds(connection, 8, FDS)
    size, data = int.from_bytes(head), b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return json.loads(data), list(streams)


def _answer(connection: socket.socket, child: int) -> None:
    _, status = os.waitpid(child, 0)
    with suppress(OSError):  # nobody waits any more
        connection.sendall(json.dumps(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _signal(child: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(child, number)


def _become(wanted: dict[str, object], streams: list[int]) -> None:
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    if os.isatty(0):
        os.setsid()
        os.close(os.open(os.ttyname(0), os.O_RDWR))  # the first that a new session opens is its own, with its Ctrl-C
    os.chdir(os.fsencode(str(wanted["folder"])))
    os.environb.clear()
    environment: dict[str, str] = wanted["environment"]  # type: ignore[assignment]
    os.environ.update(environment)
    arguments: list[str] = wanted["arguments"]  # type: ignore[assignment]
    sys.argv = ["toolcrib", *arguments]
    sys.path[0] = os.getcwd()
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]  # noqa: SIM115
    sys.stdout = sys.__stdout__ = open(1, "w", encoding="utf-8", errors="surrogateescape")  # type: ignore[misc]  # noqa: SIM115
    sys.stderr = sys.__stderr__ = open(2, "w", encoding="utf-8", errors="backslashreplace")  # type: ignore[misc]  # noqa: SIM115


if __name__ == "__main__":
    serve(sys.argv[1], int(sys.argv[2]))
    if sys.argv[1:2] == ["--file"]:
        del sys.argv[:2]
        sys.path[0] = str(Path(sys.argv[0]).parent)
        runpy.run_path(sys.argv[0], run_name="__main__")
        sys.exit()
    from toolcrib.cli import main

    status = main()
    # As at the end of an interpreter, but for taking apart all that was loaded, which takes longer than a run.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
