"""The Python of the sandbox: runs once, in an instance of its own, the program in `/tool` that its argument names.

What is imported here is what programs can import: later there is no standard library to read from.
"""

import atexit
import encodings
import importlib
import sys
import traceback
import types
from pathlib import Path
from typing import Any

_TOOL = "/tool"
# What opens a window or a page, reads a terminal, or is for the work on Python itself.
_LEFT_OUT = {"antigravity", "ensurepip", "idlelib", "this", "tkinter", "turtle", "turtledemo"}
_SUBMODULES = """
collections.abc compression.zlib concurrent.futures email.message email.mime.multipart email.mime.text email.parser
email.policy email.utils html.entities html.parser http.client http.cookies importlib.metadata importlib.resources
json.decoder json.encoder logging.config logging.handlers os.path sqlite3.dbapi2 unittest.mock urllib.error urllib.parse
urllib.request urllib.response urllib.robotparser wsgiref.util xml.dom.minidom xml.etree.ElementTree xml.sax
xml.sax.saxutils xmlrpc.client
""".split()  # noqa: SIM905 - a list would take a page


def _import_all() -> None:
    names = sorted(name for name in sys.stdlib_module_names if name not in _LEFT_OUT)
    codecs = sorted(f"encodings.{file.stem}" for file in Path(encodings.__path__[0]).glob("*.py"))
    for name in [*names, *_SUBMODULES, *codecs]:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112 - not for this platform
            continue


def _without_sockets() -> None:
    # Threads and signals wake an event loop by a pair of sockets. Here are neither of the three.
    from asyncio.selector_events import BaseSelectorEventLoop as Loop

    for name in ("_make_self_pipe", "_close_self_pipe", "_write_to_self"):
        setattr(Loop, name, lambda _: None)


_import_all()
_without_sockets()

import toolcrib_guest  # type: ignore[import-not-found]  # noqa: E402, F401 - for programs
from componentize_py_types import Err  # type: ignore[import-not-found]  # noqa: E402 - there when this is built


class Program:
    """The export of the component. Made for each call."""

    def run(self) -> int:
        status = 0
        try:
            try:
                _run()
            except SystemExit as ended:
                status = _status(ended.code)
            atexit._run_exitfuncs()  # pyright: ignore[reportPrivateUsage] - the interpreter does not end
            sys.stdout.flush()
        except BaseException as error:
            trace = error.__traceback__
            while trace is not None and not trace.tb_frame.f_code.co_filename.startswith(_TOOL):
                trace = trace.tb_next
            traceback.print_exception(type(error), error, trace)
            raise Err(" ".join(traceback.format_exception_only(error)[-1].split())[:500]) from None
        finally:
            sys.stderr.flush()
        return status


def _run() -> None:
    # Those that are there have no buffer, and lose what a pipe does not take at once.
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", errors=errors, buffering=buffering, closefd=False)  # noqa: SIM115
        for number, mode, errors, buffering in ((0, "r", "strict", -1), (1, "w", "strict", -1), (2, "w", "replace", 1))
    )
    sys.path[:] = [_TOOL, f"{_TOOL}/vendor"]
    program = f"{_TOOL}/{sys.argv[1]}"
    sys.argv = [program]
    sys.dont_write_bytecode = True
    sys.pycache_prefix = "/none"  # bytecode in its folder is not what was reviewed
    main: Any = types.ModuleType("__main__")
    main.__file__ = program
    sys.modules["__main__"] = main
    exec(compile(Path(program).read_bytes(), program, "exec"), main.__dict__)  # noqa: S102 - what it is for


def _status(code: Any) -> int:
    if code is None or isinstance(code, int):
        return (code or 0) & 0xFF
    sys.stderr.write(f"{code}\n")
    return 1
