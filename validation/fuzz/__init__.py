"""Bad and extreme calls at every door, drawn by a seed: each ends right, honest, or with an error that says what to do.

    python -m validation.fuzz --calls 20000 [--seed S] [--case K]

`values` has what is put in the place of an argument; `doors`, `files` and `commands` the calls that it is put into;
`judge` what may come out.
"""
