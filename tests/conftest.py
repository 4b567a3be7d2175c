"""What holds for every test of every package."""

import signal


def pytest_configure():
    """Hear Ctrl-C, as do processes that tests start, where a shell in the background has switched it off."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
