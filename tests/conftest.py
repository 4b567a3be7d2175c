"""What holds for every test of every package."""

import ipaddress
import os
import signal
import socket

from hypothesis import settings

# What rich, click and typer read of a terminal: a machine that sets one of them must not fold lines of its own.
TERMINAL = ["COLUMNS", "LINES", "FORCE_COLOR", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "PY_COLORS"]
TERMINAL += ["TTY_COMPATIBLE", "TTY_INTERACTIVE", "TERMINAL_WIDTH", "FORCE_TERMINAL", "GITHUB_ACTIONS"]


_CONNECT = socket.socket.connect


def _connect(self, address):
    """Connect to this machine alone: a test that needs another one would be a test of the network."""
    streams = self.type == socket.SOCK_STREAM and self.family != socket.AF_UNIX  # datagrams tell one's own address
    if streams and not _is_here(str(address[0])):
        raise RuntimeError(f"address: found {address[0]}, expected this machine: tests use no network")
    return _CONNECT(self, address)


def _is_here(host):
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host in ("localhost", "")


def pytest_configure():
    """Let every machine be the same: terminals of no told width, Ctrl-C heard where a shell has switched it off, and
    the same examples of every property in every run (fresh ones are what `make fuzz` is for), and no network.

    Tests of widths and colours set what they ask for; processes that tests start inherit the same.
    """
    socket.socket.connect = _connect
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        os.environ.pop(name, None)  # one on this machine would hide a test that asks for another
    settings.register_profile("seeded", derandomize=True, deadline=None)
    settings.load_profile("seeded")
    for name in TERMINAL:
        os.environ.pop(name, None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
