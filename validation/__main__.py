"""`python -m validation` is `triad`."""

from validation.cli import main

main()
