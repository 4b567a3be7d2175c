"""Which form a solver runs: the equations of its paper one by one, or what they contract to."""

FORMS = ("printed", "projected")


def chosen_form(form: str | None, work: float, most: float) -> str:
    """The form asked for, or by size: "printed" while the work of one sweep is at most `most`, "projected" beyond.

    Parameters
    ----------
    form : str or None        "printed", "projected", or None for the rule of size
    work : float              of one sweep as printed, in units that the method states
    most : float              of these units, where the rule changes over
    """
    if form is not None:
        return form
    return "printed" if work <= most else "projected"
