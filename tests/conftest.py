"""What holds for every test of every package."""

import os
import signal

from hypothesis import settings

# What rich, click and typer read of a terminal: a machine that sets one of them must not fold lines of its own.
TERMINAL = ["COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS"]
TERMINAL += ["TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERMINAL_WIDTH", "FORCE_TERMINAL", "GITHUB_ACTIONS"]


def pytest_configure():
    """Let every machine be the same: terminals of no told width, Ctrl-C heard where a shell has switched it off, and
    the same examples of every property in every run (fresh ones are what `make fuzz` is for).

    Tests of widths and colours set what they ask for; processes that tests start inherit the same.
    """
    settings.register_profile("seeded", derandomize=True, deadline=None)
    settings.load_profile("seeded")
    for name in TERMINAL:
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
