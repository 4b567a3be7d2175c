"""Bad and extreme calls at every door, drawn by a seed: each returns a right answer or raises a helpful error.

    make fuzz [N=20000] [SEED=S]
    PYTHONPATH=tests python -m fuzz --calls 20000 [--seed S] [--case K]

`values` has what is put in the place of an argument; `doors`, `files` and `commands` the calls that it is put into;
`judge` what may come out.
"""
