"""`python -m validation` is `triad`."""

from validation.cli import main

if __name__ == "__main__":
    main()
