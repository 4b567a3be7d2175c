"""`python -m validation.fuzz`."""

from validation.fuzz.run import main

if __name__ == "__main__":
    raise SystemExit(main())
