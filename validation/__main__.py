"""`python -m validation` is `triad`."""

from validation.command.entry import main

if __name__ == "__main__":
    main()
