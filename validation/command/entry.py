"""The process of `triad`: Ctrl-C ends it with exit code 130 and without a traceback, whatever it is doing.

It writes in the encoding that its streams have, with a replacement for each character that the encoding lacks.

This module loads nothing that takes time, so that the handler stands before NumPy and the commands are imported.
Then an interrupt

- ends the process at once while the command line is being loaded: nothing has begun;
- waits for the end of an import under way, at most two seconds: modules that are loaded by half raise anything, and
  some swallow what they are sent;
- is a KeyboardInterrupt elsewhere: commands stop what they started and list what they have;
- ends the process by force if it comes again when the first has not ended it within some seconds.

Before Python runs the first line of this module (some ten milliseconds after its start) an interrupt is the
interpreter's own.
"""

from __future__ import annotations

import _thread
import os
import signal
import sys
import time

TYPE_CHECKING = False  # `typing` takes 10 ms, in which an interrupt would not be ours yet
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any, NoReturn

INTERRUPTED = 130  # what a shell reports for a program ended by Ctrl-C
LONGEST_IMPORT = 2.0  # seconds that an interrupt waits for an import at most
LONGEST_END = 3.0  # seconds after which a second interrupt ends the process by force
PAUSE = 0.02  # seconds between two looks at whether an import is over


class Interrupts:
    """What an interrupt does at each stage of the process; `asked` once there was one."""

    def __init__(self) -> None:
        """Stage: loading the command line."""
        self.stage = "loading"
        self.code: Any = INTERRUPTED
        self.asked: float | None = None
        self.raised: float | None = None

    def install(self) -> None:
        """Take the signal, unless the process was started with it ignored (as shells do in the background)."""
        if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self)
            self._others = sys.unraisablehook
            sys.unraisablehook = self.unraisable

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler, which Python calls in the main thread between two steps of the program."""
        now = time.monotonic()
        if self.stage != "working":
            self.quit()
        if self.asked is None:
            self.asked = now
        if self.raised is not None:
            if now - self.raised > LONGEST_END:
                self.quit()
            return  # it is ending
        if importing(frame) and now - self.asked < LONGEST_IMPORT:
            self.again()
            return
        self.raised = now
        raise KeyboardInterrupt

    def again(self) -> None:
        """Interrupt once more in a moment."""
        import threading

        timer = threading.Timer(PAUSE, _thread.interrupt_main)
        timer.daemon = True
        timer.start()

    def unraisable(self, told: Any) -> None:
        """An interrupt in a finaliser, where Python can only print it, comes once more outside."""
        if issubclass(told.exc_type, KeyboardInterrupt):
            self.raised = None
            self.again()
        else:
            self._others(told)

    def quit(self) -> NoReturn:
        """End now: what was written is flushed, child processes are stopped, nothing else runs."""
        code = self.code
        if self.stage != "over":
            code = INTERRUPTED
            os.write(2, b"interrupted\n")
        children = sys.modules.get("multiprocessing")
        for child in children.active_children() if children is not None else ():
            child.terminate()
        flush()
        os._exit(code if isinstance(code, int) else int(code is not None))


def importing(frame: FrameType | None) -> bool:
    """Whether a module is being imported on the stack of `frame`."""
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def replace_unencodable() -> None:
    """On stdout, and in Python processes started here, write a replacement for what the encoding lacks.

    Streams keep their encoding. stderr needs nothing: Python never raises there.
    """
    encoding = os.environ.get("PYTHONIOENCODING", "").partition(":")[0]
    os.environ["PYTHONIOENCODING"] = f"{encoding}:replace"
    if sys.stdout is not None:  # closed by whoever started the process
        sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]


def main() -> NoReturn:
    """Entry point of the command `triad` and of `python -m validation`."""
    replace_unencodable()
    interrupts = Interrupts()
    interrupts.install()
    code: Any = 0
    try:
        try:
            from validation.command.cli import main as run

            interrupts.stage = "working"
            run()
        except SystemExit as end:
            code = end.code
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BaseException:
            if interrupts.asked is None:
                raise
        # an import that was cut short, or a library that caught everything, may have made something else of it
        interrupts.code = code
        interrupts.stage = "over" if interrupts.asked is None else "ending"
    except KeyboardInterrupt:
        interrupts.stage = "ending"
    import atexit

    if interrupts.stage == "ending":
        leave(atexit)
    # the last that runs: from there to the end of the process nobody could handle the signal
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    raise SystemExit(code)


def leave(atexit: Any) -> NoReturn:
    """End an interrupted process in order, but not through the interpreter's end.

    That would send the signal once more, with its default action, if a library had met it inside code of its own.
    """
    import threading

    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join(LONGEST_END)  # told to stop by whoever started it
    atexit._run_exitfuncs()
    flush()
    os._exit(INTERRUPTED)


def flush() -> None:
    """Write what stdout and stderr still hold."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, RuntimeError):  # closed, or in the middle of a write: it gets no more
            continue


__all__ = ["INTERRUPTED", "Interrupts", "importing", "main"]
