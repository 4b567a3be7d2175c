"""What the ledger says of markers that are not of the agreed form, and which folder it takes for its repository."""

import pytest

from validation.ledger import collection
from validation.ledger.collection import Claim, NoTestsError, read_claims


def test_a_marker_gives_one_claim_per_id():
    assert read_claims(("toy", "1", "2"), {"route": " by hand ", "resolves": 0.05, "printed": True}) == [
        Claim("toy", "1", "by hand", 0.05, True),
        Claim("toy", "2", "by hand", 0.05, True),
    ]


@pytest.mark.parametrize(
    ("args", "kwargs", "match"),
    [
        (("toy", "1"), {}, "route: found None"),
        (("toy", "1"), {"route": "  "}, "route: found '  '"),
        (("toy", "1"), {"route": "r", "resolve": 0.1}, "resolve: found an unknown keyword"),
        (("toy", "1"), {"route": "r", "resolves": 2.0}, "resolves: found 2.0"),
        (("toy", "1"), {"route": "r", "resolves": True}, "resolves: found True"),
        (("toy", "1"), {"route": "r", "printed": 1}, "printed: found 1"),
        (("toy",), {"route": "r"}, "ids: found none"),
        ((), {"route": "r"}, "paper, .ids: found"),
        (("toy", 11), {"route": "r"}, "paper, .ids: found .'toy', 11., expected texts"),
    ],
)
def test_a_marker_of_another_form_is_an_error_that_names_the_argument(args, kwargs, match):
    with pytest.raises(ValueError, match=match):
        read_claims(args, kwargs)


def test_only_a_clone_of_this_project_is_taken_for_its_repository(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "another"\n', encoding="utf-8")
    with pytest.raises(NoTestsError, match="expected a clone of the repository"):
        collection.find_root(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "gpc-triad"\n', encoding="utf-8")
    assert collection.find_root(tmp_path) == tmp_path
