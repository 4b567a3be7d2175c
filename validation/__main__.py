"""`python -m validation` is `triad`."""

from validation.entry import main

if __name__ == "__main__":
    main()
