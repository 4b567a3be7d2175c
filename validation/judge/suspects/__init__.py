"""The usual suspects: which well-known mistake would make two solutions agree that do not.

    from validation.judge.suspects.search import suspects

    for suspect in suspects(mine, theirs).ranked:
        print(suspect.text)

A suspect is a transformation of one side's answer (a constant in log Z, columns of classes in another order, standard
deviations for variances), or the answer to another question (noise counted twice, lengthscales squared, another link),
which is had by solving the changed problem with the method of the side that is held suspect. It is stated only if it
brings a quantity that differs to within the limit, or a hundred times nearer. Those that explain more quantities come
first. A suspect is no proof: two mistakes can look alike on one problem, and a second problem tells them apart.
"""
