"""Which form a solver runs, the equations of its paper one by one or what they contract to: one rule for all papers."""

FORMS = ("printed", "projected")

SECONDS = 0.6  # of one solve: `triad verify` asks some hundred solves of small problems, and has two minutes
DIGITS = 1e4  # factor by which rounding may grow: four of sixteen digits, where answers are claimed to ten


def chosen_form(form: str | None, *, seconds: float = 0.0, lost: float = 1.0, searched: bool = False) -> str:
    """The form asked for, or "printed" where that takes at most SECONDS and loses at most DIGITS, else "projected".

    A search over hyper-parameters wants a fixed point at each of some hundred steps and is not printed where the method
    says that it is one.

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for this rule
    seconds : float           that one solve takes as printed: the method's work times what a unit of it was measured to
                              take on one core
    lost : float              by how much inverses and differences as printed enlarge rounding, as the method knows it
    searched : bool           whether hyper-parameters are looked for, one solve at each step
    """
    if form is not None:
        return form
    return "printed" if seconds <= SECONDS and lost <= DIGITS and not searched else "projected"
