"""Arguments by position: no more than have a place, and none twice."""

import numpy as np
import pytest
from support.by_name import by_name, sampler_by_name

from fast.methods import x_gpc
from gibbs.models import multilatent

X, Y = np.array([[0.0], [1.0], [2.5]]), np.array([0, 1, 0])
CHECKED = (X, Y, 2, 1, 1.0, [1.0], 0.1, 1e-6, None, "full", None)
FITTED = (X, Y, 1.0, [1.0], 0.1, 1e-6, X)


@pytest.mark.parametrize(
    ("function", "given"),
    [(sampler_by_name(multilatent.check), CHECKED), (by_name(x_gpc.fit, binary=True), FITTED)],
    ids=["gibbs", "fast"],
)
def test_an_argument_without_a_place_or_given_twice_is_refused(function, given):
    function(*given)
    many = f"found {len(given) + 1} arguments by position, expected at most {len(given)}"
    with pytest.raises(TypeError, match=many):
        function(*given, None)
    with pytest.raises(TypeError, match="found noise, variance by position and by name"):
        function(*given, variance=2.0, noise=0.3)
