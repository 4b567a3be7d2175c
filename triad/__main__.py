"""`python -m triad` is the command `triad`."""

from validation.command.entry import main

if __name__ == "__main__":
    main()
