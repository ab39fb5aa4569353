"""The command: its entry point, and its one exit with exit status, signals and error messages.

Exit status: 0 success, 1 failure, 2 a command line that cannot be understood, 3 a call that waits for an answer,
130 Ctrl-C, 143 SIGTERM.
"""

import sys
from collections.abc import Sequence

from .interrupts import Interrupted, Interrupts, end_threads
from .terminal import OutputClosed, UsageError, discard, echo, prepare_streams

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command with *arguments*, by default those of the process. Returns the exit status.

    This is the entry point of a process: after a signal or a timeout it ends the process if nothing else does.
    """
    prepare_streams()
    interrupts = Interrupts()
    with interrupts.handled():
        try:
            status = _run(arguments, interrupts)
            sys.stdout.flush()
        except Interrupted as interrupted:
            interrupts.restore_terminal()  # again: work goes on after the signal until it is cancelled
            return end_threads(interrupted.status)
        except SystemExit as ended:
            if not isinstance(ended.__context__, BrokenPipeError):
                raise
            return 0  # the reader of a help text closed the pipe: Typer ends with 1
        except (OutputClosed, BrokenPipeError):
            discard(sys.stdout)  # the reader closed the pipe (for example `head`)
            return 0
        return status


def _run(arguments: Sequence[str] | None, interrupts: Interrupts) -> int:
    # Imported here, so that Ctrl-C is as quiet meanwhile as later.
    import typer

    from ..core import ToolcribError, ToolError
    from .app import Session, app

    try:
        command = typer.main.get_command(app)
        args = None if arguments is None else list(arguments)
        # Without standalone mode the errors come here, and the value is what the command returned or its exit status.
        value = command.main(args, prog_name="toolcrib", standalone_mode=False, obj=Session(interrupts))
        return value if isinstance(value, int) else 0
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
        hint = f" Try: {context.command_path} --help" if context is not None else ""
        message = " ".join(str(format_message()).split())
        return _fail(f"{message if message.endswith(('.', '?', ')')) else f'{message}.'}{hint}", 2)


def _fail(message: str, status: int) -> int:
    echo(f"Error: {message}", wrap=True)
    return status
