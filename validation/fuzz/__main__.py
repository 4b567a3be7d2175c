"""`python -m validation.fuzz`."""

from validation.fuzz.run import main

raise SystemExit(main())
