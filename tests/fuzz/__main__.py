"""`PYTHONPATH=tests python -m fuzz`."""

import contextlib
import tempfile

from fuzz.run import main

if __name__ == "__main__":
    # a text that a door takes for the name of a file leaves that file where it was called
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        status = main()
    raise SystemExit(status)
