"""The command's entry point and its one exit: exit status, signals, and the messages of what went wrong.

Exit status: 0 success, 1 failure, 2 a command line that cannot be understood, 3 a call that waits for somebody,
130 Ctrl-C, 143 SIGTERM.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Any

from ..core import ToolcribError, ToolError
from .interrupts import Interrupted, Interrupts
from .terminal import OutputClosed, UsageError, discard, echo, prepare_streams


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with *arguments*, by default those of the process. Returns the exit status.

    This is the entry point of a process: after a signal or a timeout it ends the process if nothing else does.
    """
    prepare_streams()
    with Interrupts() as interrupts:
        try:
            # Typer is imported here, so that Ctrl-C is as quiet meanwhile as later.
            from .app import app

            status = _run(app, arguments, interrupts)
            sys.stdout.flush()
        except Interrupted as interrupted:
            return _exited(interrupted.status)
        except SystemExit as ended:
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            return 0  # the reader of a help text has enough of it: Typer ends with 1
        except (OutputClosed, BrokenPipeError):
            # Whoever reads standard output has enough, as `head` does.
            discard(sys.stdout)
            return 0
        return status


def _exited(status: int) -> int:
    """Return *status*; or end the process, where the work of a tool still runs in a thread.

    An interpreter that ends while such a thread is writing aborts, with a long message.
    """
    if any(thread.daemon for thread in threading.enumerate()):
        for stream in (sys.stdout, sys.stderr):
            flush = threading.Thread(target=stream.flush, daemon=True)
            flush.start()
            flush.join(_FLUSH_S)  # a tool that is writing may hold the stream for good
        os._exit(status)
    return status


_FLUSH_S = 0.2


def _run(app: Any, arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    import typer

    try:
        command = typer.main.get_command(app)
        args = None if arguments is None else list(arguments)
        # Without standalone mode the errors come here, and the value is what the command returned or its exit status.
        returned = command.main(args, prog_name="toolcrib", standalone_mode=False, obj=interrupts)
        return returned if isinstance(returned, int) else 0
    except UsageError as error:
        return _fail(str(error), 2)
    except (ToolcribError, ToolError) as error:
        return _fail(str(error), 1)
    except typer.Abort:
        return _fail("Aborted.", 1)
    except Exception as error:
        # Typer's own, whose class has moved between its releases.
        format_message = getattr(error, "format_message", None)
        if format_message is None:
            raise
        context = getattr(error, "ctx", None)
        hint = f" Try: {_better(error, context)}" if context is not None else ""
        message = " ".join(str(format_message()).split())
        return _fail(f"{message if message.endswith(('.', '?', ')')) else f'{message}.'}{hint}", 2)


def _better(error: Exception, context: Any) -> str:
    """What to type in place of that which Typer refuses."""
    option, commands = getattr(error, "option_name", None), getattr(context.command, "commands", {})
    has_it = (name for name, one in commands.items() if any(option in each.opts for each in one.params))
    after = next(has_it, None)  # options stand after the command that they are for
    return f"{context.command_path} --help" if after is None else f"{context.command_path} {after} {option} ..."


def _fail(message: str, status: int) -> int:
    echo(f"Error: {message}", wrap=True)
    return status
