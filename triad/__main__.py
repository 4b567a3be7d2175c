"""`python -m triad` is the command `triad`."""

from validation.entry import main

if __name__ == "__main__":
    main()
