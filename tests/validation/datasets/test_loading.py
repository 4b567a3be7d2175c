"""Where data sets come from: a folder with a manifest, OpenML (mocked), and the errors when there is none."""

import gzip
import hashlib
import importlib
import io
import json
import tomllib
import urllib.error
from importlib import resources
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import sklearn.datasets
import typer
from typer.testing import CliRunner

from validation import datasets
from validation.command.datasets import data
from validation.datasets import DatasetCorruptError, DatasetNotFoundError
from validation.datasets.folder import data_folder, read_manifest

CSV = "x1,x2,y\n1.5,7,10\n-2,7,2\n.25,7,2\n1e-3,7,10\n"


@pytest.fixture(autouse=True)
def _offline(monkeypatch):
    """No environment and no network: a test that needs OpenML puts its own answer in place."""

    def unreachable(**_):
        raise urllib.error.URLError("no network in tests")

    monkeypatch.delenv("TRIAD_DATA", raising=False)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", unreachable)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIAD_DATA", str(tmp_path))
    return tmp_path


def compress(text):
    return gzip.compress(text.encode(), mtime=0)


def archive(**arrays):
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def write(folder, content, *, file="tiny.csv.gz", drop=(), extra="", **changes):
    """A folder with one data set; `drop` leaves keys out, `changes` overrides their TOML text."""
    keys = {
        "name": '"tiny"',
        "file": f'"{file}"',
        "n": "4",
        "d": "2",
        "c": "2",
        "n_train": "0",
        "classes": '{ "2" = 2, "10" = 2 }',
        "sha256": f'"{hashlib.sha256(content).hexdigest()}"',
        "constant_features": "[2]",
        "citation": '"nobody"',
        **changes,
    }
    lines = [f"{key} = {text}" for key, text in keys.items() if key not in drop]
    (folder / "manifest.toml").write_text("\n".join(["[[dataset]]", *lines, extra]))
    (folder / file).write_bytes(content)


# --- the folder


def test_folder_set_is_read_exactly_and_integer_labels_are_coded_by_size(folder):
    write(folder, compress(CSV))
    tiny = datasets.load("tiny")
    assert tiny.X.tolist() == [[1.5, 7.0], [-2.0, 7.0], [0.25, 7.0], [0.001, 7.0]]
    assert (tiny.classes, tiny.y.tolist()) == (("2", "10"), [1, 0, 0, 1])
    assert (tiny.feature_names, tiny.constant_features) == (("x1", "x2"), (1,))
    assert (tiny.source, tiny.citation) == ("$TRIAD_DATA/tiny.csv.gz", "nobody")
    assert tiny.sha256 == hashlib.sha256((folder / "tiny.csv.gz").read_bytes()).hexdigest()


def test_numbers_are_read_to_the_last_bit(folder):
    numbers = np.random.default_rng(3).standard_normal(200) * 10.0 ** np.arange(-100, 100)
    text = "x1,y\n" + "".join(f"{x!r},{i % 2}\n" for i, x in enumerate(numbers.tolist()))
    write(folder, compress(text), n="200", d="1", classes='{ "0" = 100, "1" = 100 }', drop=["constant_features"])
    assert datasets.load("tiny").X[:, 0].tolist() == numbers.tolist()


def test_npz_keeps_its_official_split(folder):
    X, y = np.arange(8, dtype=np.uint8).reshape(4, 2), np.array([2, 10, 10, 2], dtype=np.uint8)
    content = archive(x_train=X[:3], y_train=y[:3], x_test=X[3:], y_test=y[3:])
    keys = {"n_train": "3", "train_classes": '{ "2" = 1, "10" = 2 }', "constant_features": "[]"}
    write(folder, content, file="tiny.npz", **keys)
    tiny = datasets.load("tiny")
    assert (tiny.n_train, tiny.X.dtype, tiny.X.tolist()) == (3, np.float64, X.tolist())
    assert tiny.y.tolist() == [0, 1, 1, 0]
    write(folder, content, file="tiny.npz", **{**keys, "n_train": "2"}, drop=["train_classes"])
    with pytest.raises(DatasetCorruptError, match="n_train: found 3 rows in x_train, expected 2"):
        datasets.load("tiny")


def test_pickled_npz_is_refused(folder):
    write(folder, archive(X=np.array([[1, None]] * 4, dtype=object), y=np.array([2, 2, 10, 10])), file="tiny.npz")
    with pytest.raises(DatasetCorruptError, match="allow_pickle"):
        datasets.load("tiny")


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"X": np.ones((4, 2))}, "found the arrays"),
        ({"X": np.ones((4, 2)), "y": np.ones(3)}, r"expected real \(n, d\)"),
        ({"X": np.ones(4), "y": np.ones(4)}, r"expected real \(n, d\)"),
        ({"X": np.full((4, 2), "a"), "y": np.ones(4)}, r"expected real \(n, d\)"),
    ],
)
def test_npz_of_another_form_is_refused(folder, arrays, message):
    write(folder, archive(**arrays), file="tiny.npz")
    with pytest.raises(DatasetCorruptError, match=message):
        datasets.load("tiny")


def test_truncated_npz_is_refused(folder):
    write(folder, archive(X=np.ones((4, 2)), y=np.ones(4))[:-30], file="tiny.npz")
    with pytest.raises(DatasetCorruptError, match=r"found a damaged file \(.*, expected a .npz"):
        datasets.load("tiny")


def test_changed_file_is_refused_by_its_digest(folder):
    write(folder, compress(CSV))
    (folder / "tiny.csv.gz").write_bytes(compress(CSV.replace("1.5", "1.6")))
    with pytest.raises(DatasetCorruptError, match=r"found sha256 .* restore it"):
        datasets.load("tiny")


def test_digest_is_checked_on_each_load(folder):
    write(folder, compress(CSV))
    datasets.load("tiny")
    (folder / "tiny.csv.gz").write_bytes(compress(CSV.replace("1.5", "1.6")))
    with pytest.raises(DatasetCorruptError, match="sha256"):
        datasets.load("tiny")


def test_truncated_gzip_is_refused_even_with_its_own_digest(folder):
    write(folder, compress(CSV)[:-12])
    with pytest.raises(DatasetCorruptError, match=r"found a damaged file \(.*, expected a gzip"):
        datasets.load("tiny")


def test_absent_file_of_the_manifest_is_reported_as_absent(folder):
    write(folder, compress(CSV))
    (folder / "tiny.csv.gz").unlink()
    with pytest.raises(DatasetNotFoundError, match=r"found no readable file .*tiny\.csv\.gz"):
        datasets.load("tiny")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: found ''"),
        ("a,b,y\n1,2,2\n", "expected the header x1,...,xd,y"),
        ("x1,x2,y\n", "found no rows"),
        (CSV.replace("-2,7,2", "-2,7"), "line 3: found 1 commas, expected 2"),
        (CSV.replace("-2,7,2", "-2,7,7,2"), "line 3: found 3 commas, expected 2"),
        (CSV.replace("-2", "two"), "an entry that is no number"),
        (CSV.replace("-2", ""), "an entry that is no number"),
        (CSV.replace("-2", "nan"), "X: found nan"),
    ],
)
def test_malformed_table_is_refused_with_its_line(folder, text, message):
    write(folder, compress(text))
    with pytest.raises(DatasetCorruptError, match=message):
        datasets.load("tiny")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": "5", "classes": '{ "2" = 3, "10" = 2 }'}, "n: found 4, expected 5"),
        ({"d": "3"}, "d: found 2, expected 3"),
        ({"classes": '{ "2" = 3, "10" = 1 }'}, "classes: found .*'2': 2.*expected .*'2': 3"),
        ({"classes": '{ "a" = 2, "b" = 2 }'}, "classes: found"),
        ({"constant_features": "[]"}, r"constant_features: found \(1,\), expected \(\)"),
        ({"n_train": "2", "train_classes": '{ "2" = 2 }'}, "train_classes: found"),
    ],
)
def test_content_that_differs_from_the_manifest_is_refused(folder, changes, message):
    write(folder, compress(CSV), **changes)
    with pytest.raises(DatasetCorruptError, match=message):
        datasets.load("tiny")


@pytest.mark.parametrize("key", ["file", "n", "d", "classes", "sha256", "citation"])
def test_manifest_entry_without_a_key_is_refused_by_name(folder, key):
    write(folder, compress(CSV), drop=[key])
    with pytest.raises(DatasetCorruptError, match=f"tiny: found no key '{key}'"):
        datasets.load("tiny")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n": '"4"'}, "n: found '4', expected a value of type int"),
        ({"n": "true"}, "n: found True"),
        ({"c": "3"}, "c: found 3, expected 2"),
        ({"n": "7"}, "classes: found 4, expected 7"),
        ({"classes": '{ "2" = 2, "10" = "2" }'}, "classes.10: found '2'"),
        ({"n_train": "4"}, "n_train = 4"),
        ({"constant_features": "[3]"}, r"constant_features: found \[3\]"),
        ({"constant_features": '["x2"]'}, "constant_features: found"),
        ({"sha256": '"12"'}, "sha256: found '12'"),
    ],
)
def test_manifest_entry_that_contradicts_itself_is_refused(folder, changes, message):
    write(folder, compress(CSV), **changes)
    with pytest.raises(DatasetCorruptError, match=message):
        datasets.load("tiny")


@pytest.mark.parametrize("file", ["../tiny.csv.gz", "/tiny.csv.gz", "a/../../tiny.csv.gz", "", "tiny.arff"])
def test_manifest_file_outside_the_folder_or_of_another_kind_is_refused(folder, file):
    write(folder, compress(CSV))
    manifest = folder / "manifest.toml"
    manifest.write_text(manifest.read_text().replace('"tiny.csv.gz"', f'"{file}"'))
    with pytest.raises(DatasetCorruptError, match=r"file: found .*expected a (path inside the folder|name that ends)"):
        datasets.load("tiny")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[dataset]\n", "no readable TOML"),
        ('[[dataset]]\nfile = "a"\n', "dataset 1: found no key 'name'"),
        ('[[dataset]]\nname = "a"\n[[dataset]]\nname = "a"\n', "two datasets named 'a'"),
        ("dataset = 3\n", r"expected \[\[dataset\]\] tables"),
        ('[[missing]]\nname = "a"\n', "missing a: found no key 'why'"),
    ],
)
def test_unreadable_manifest_is_refused(folder, text, message):
    (folder / "manifest.toml").write_text(text)
    with pytest.raises(DatasetCorruptError, match=message):
        datasets.load("tiny")


def test_a_mistyped_folder_is_an_error_and_not_an_absence(tmp_path, monkeypatch):
    monkeypatch.setenv("TRIAD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(DatasetNotFoundError, match=r"\$TRIAD_DATA: found .*nowhere"):
        datasets.load("glass")
    assert datasets.load("iris").n == 150  # needs no folder


def test_a_folder_cannot_give_a_known_name_to_another_set(folder):
    write(folder, compress(CSV), name='"glass"')
    with pytest.raises(DatasetCorruptError, match=r"glass from .*: n: found 4, expected 214"):
        datasets.load("glass")


def test_bundled_copy_goes_before_the_folder_and_source_asks_for_one(folder):
    iris = sklearn.datasets.load_iris()
    X = iris.data.copy()
    X[34, 3], X[37, 1], X[37, 2] = 0.1, 3.1, 1.5  # the misprints of the UCI file
    names = ["Iris-setosa", "Iris-versicolor", "Iris-virginica"]
    rows = [",".join([*map(repr, row), names[k]]) for row, k in zip(X.tolist(), iris.target, strict=True)]
    classes = "{ " + ", ".join(f'"{label}" = 50' for label in names) + " }"
    content = compress("\n".join(["x1,x2,x3,x4,y", *rows]))
    write(folder, content, name='"iris"', n="150", d="4", c="3", classes=classes, constant_features="[]")
    bundled, copy = datasets.load("iris"), datasets.load("iris", source="folder")
    assert bundled.source.startswith("scikit-learn")
    assert copy.source == "$TRIAD_DATA/tiny.csv.gz"
    assert np.argwhere(bundled.X != copy.X).tolist() == [[34, 3], [37, 1], [37, 2]]
    assert np.array_equal(bundled.y, copy.y)
    with pytest.raises(DatasetNotFoundError, match="bundled sets: only iris, wine, digits, breast_cancer"):
        datasets.load("tiny", source="embedded")


# --- not to be had


def test_absent_and_offline_says_what_was_looked_for_where_and_what_to_do():
    with pytest.raises(DatasetNotFoundError) as caught:
        datasets.load("glass")
    text = str(caught.value)
    for part in (
        "found 'glass'",
        "scikit-learn's bundled sets",
        "$TRIAD_DATA: not set",
        "OpenML data id 41",
        "no network in tests",
        "set TRIAD_DATA",
    ):
        assert part in text
    assert isinstance(caught.value, LookupError)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("iriss", "did you mean iris"),
        ("Breast Cancer", "did you mean breast_cancer"),
        ("waveform", r"call validation\.datasets\.make_waveform"),
        ("usps_resampled", "4649/4649 re-split .* imitates it"),
        ("airline", "no copy is at hand"),
        ("svmguide2", "OpenML: no copy in this form is known"),
    ],
)
def test_name_that_cannot_be_loaded_is_told_why(name, message):
    with pytest.raises(DatasetNotFoundError, match=message):
        datasets.load(name)


def test_folder_says_why_it_lacks_a_set(folder):
    write(folder, compress(CSV), extra='[[missing]]\nname = "huge"\nwhy = "too big for us"')
    with pytest.raises(DatasetNotFoundError, match="too big for us"):
        datasets.load("huge")


def test_unknown_source_and_name_of_another_type_are_refused():
    with pytest.raises(ValueError, match="source: found 'uci', expected one of embedded, folder, openml"):
        datasets.load("iris", source="uci")
    with pytest.raises(TypeError, match="name: found int"):
        datasets.load(3)


# --- OpenML


def answer(monkeypatch, frame, target, asked=None):
    def fetch(**arguments):
        if asked is not None:
            asked.append(arguments)
        return SimpleNamespace(data=frame, target=pd.Series(target, dtype="category"))

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)


class Response(io.BytesIO):
    """What `urlopen` gives."""

    def info(self):
        return {}


def served_iris(monkeypatch, tmp_path, content):
    """scikit-learn's own client over a server of four pages, which publishes the digest of Fisher's file."""
    bunch = sklearn.datasets.load_iris()
    X = bunch.data.copy()
    X[34], X[37] = [4.9, 3.1, 1.5, 0.1], [4.9, 3.1, 1.5, 0.1]  # the misprints of UCI's copy
    names = ["sepallength", "sepalwidth", "petallength", "petalwidth"]
    head = ["@RELATION iris", *(f"@ATTRIBUTE {name} REAL" for name in names)]
    head += ["@ATTRIBUTE class {Iris-setosa,Iris-versicolor,Iris-virginica}", "@DATA"]
    rows = [f"{','.join(map(str, x))},Iris-{bunch.target_names[c]}" for x, c in zip(X, bunch.target, strict=True)]
    file = ("\n".join([*head, *rows]) + "\n").encode()
    described = {"id": "61", "name": "iris", "version": "1", "format": "ARFF", "status": "active", "file_id": "61",
                 "url": "https://www.openml.org/data/v1/download/61/iris.arff", "default_target_attribute": "class",
                 "description": "none", "md5_checksum": hashlib.md5(file).hexdigest()}  # fmt: skip
    of_all = {"is_ignore": "false", "is_row_identifier": "false", "number_of_missing_values": "0"}
    features = [
        {"index": str(j), "name": name, "data_type": "numeric", "is_target": "false"} | of_all
        for j, name in enumerate(names)
    ]
    features.append({"index": "4", "name": "class", "data_type": "nominal", "is_target": "true"} | of_all)
    features[-1]["nominal_value"] = ["Iris-setosa", "Iris-versicolor", "Iris-virginica"]
    pages = {
        "/features/61": {"data_features": {"feature": features}},
        "/qualities/61": {"data_qualities": {"quality": [{"name": "NumberOfInstances", "value": "150"}]}},
        "/json/data/61": {"data_set_description": described},
    }

    def urlopen(request, *_, **__):
        url = request if isinstance(request, str) else request.full_url
        page = next((page for end, page in pages.items() if url.endswith(end)), None)
        return Response(content(file) if page is None else json.dumps(page).encode())

    module = importlib.import_module("sklearn.datasets._openml")
    monkeypatch.setattr(module, "urlopen", urlopen)
    monkeypatch.setattr(sklearn.datasets, "fetch_openml", module.fetch_openml)
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    return X


def test_a_file_with_the_digest_that_openml_publishes_is_read(monkeypatch, tmp_path):
    X = served_iris(monkeypatch, tmp_path, lambda file: file)
    assert np.array_equal(datasets.load("iris", source="openml").X, X)


def test_a_file_of_other_content_and_the_same_counts_is_refused_by_name(monkeypatch, tmp_path):
    served_iris(monkeypatch, tmp_path, lambda file: file.replace(b"5.1,3.5,1.4,0.2", b"5.1,3.5,1.4,0.3", 1))
    with pytest.raises(DatasetCorruptError, match=r"^iris from OpenML data id 61 \(iris\): .*md5 checksum.* expected"):
        datasets.load("iris", source="openml")


def glass_target():
    counts = {
        "build wind float": 70,
        "'build wind non-float'": 76,
        "vehic wind float": 17,
        "containers": 13,
        "tableware": 9,
        "headlamps": 29,
    }
    return np.repeat(list(counts), list(counts.values()))


def test_openml_copy_gets_our_labels_and_is_checked(monkeypatch):
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(214, 9)), columns=list("abcdefghi"))
    asked = []
    answer(monkeypatch, frame, glass_target(), asked)
    glass = datasets.load("glass")
    assert asked[0]["data_id"] == 41
    assert (glass.classes, glass.class_counts["2"], glass.class_counts["7"]) == (("1", "2", "3", "5", "6", "7"), 76, 29)
    assert (glass.source, glass.feature_names) == ("OpenML data id 41 (glass)", tuple("abcdefghi"))
    assert glass.sha256 == glass.content_sha256
    answer(monkeypatch, frame, [*glass_target()[1:], "tableware"])
    with pytest.raises(DatasetCorruptError, match="classes: found"):
        datasets.load("glass")
    answer(monkeypatch, frame[list("abcdefgh")], glass_target())
    with pytest.raises(DatasetCorruptError, match="d: found 8, expected 9"):
        datasets.load("glass")


def test_openml_rows_with_missing_values_are_left_out_only_where_the_table_says_so(monkeypatch):
    X = np.random.default_rng(0).integers(1, 11, size=(699, 9)).astype(float)
    target = np.repeat(["benign", "malignant"], [458, 241])
    X[[*range(14), 458, 459], 5] = np.nan  # as at UCI: 14 benign and 2 malignant
    answer(monkeypatch, pd.DataFrame(X, columns=list("abcdefghi")), target)
    assert datasets.load("breast_cancer_wisconsin").class_counts == {"2": 444, "4": 239}
    glass = pd.DataFrame(np.full((214, 9), np.nan), columns=list("abcdefghi"))
    answer(monkeypatch, glass, glass_target())
    with pytest.raises(DatasetCorruptError, match="X: found nan"):
        datasets.load("glass")


def test_openml_columns_are_chosen_by_the_table_and_its_row_order_is_no_official_split(monkeypatch):
    labels = ["hid", "hId", "hEd", "hAd", "hYd", "had", "hOd", "hod", "hUd", "hud", "hed"]
    X = np.random.default_rng(0).normal(size=(990, 10))
    frame = pd.DataFrame(X, columns=[f"Feature_{j}" for j in range(10)])
    frame.insert(0, "Sex", pd.Categorical(["Male", "Female"] * 495))
    answer(monkeypatch, frame, np.tile(labels, 90))
    vowel = datasets.load("vowel")
    assert (vowel.d, vowel.n_train, vowel.y[:11].tolist()) == (10, 0, list(range(11)))
    assert vowel.classes == tuple(str(k) for k in range(11))
    assert vowel.only(*"012345").n == 540
    answer(monkeypatch, frame.drop(columns="Feature_3"), np.tile(labels, 90))
    with pytest.raises(DatasetCorruptError, match="Feature_3"):
        datasets.load("vowel")


def test_openml_category_that_is_no_number_is_refused(monkeypatch):
    frame = pd.DataFrame(np.ones((214, 9)), columns=list("abcdefghi")).astype({"a": object})
    frame["a"] = pd.Categorical(["low", "high"] * 107)
    answer(monkeypatch, frame, glass_target())
    with pytest.raises(DatasetCorruptError, match="an input that is no number"):
        datasets.load("glass")


def test_openml_answer_that_is_refused_by_scikit_learn_is_reported_with_the_data_id(monkeypatch):
    def fetch(**_):
        raise ValueError("md5 checksum does not match")

    monkeypatch.setattr(sklearn.datasets, "fetch_openml", fetch)
    with pytest.raises(DatasetCorruptError, match=r"glass from OpenML data id 41 \(glass\): md5"):
        datasets.load("glass")


# --- the table


def test_shipped_table_is_consistent_and_names_no_machine():
    table = datasets.catalogue()
    assert len(table) == len({name.lower() for name in table})
    for name, entry in table.items():
        assert entry.expected or entry.missing or entry.generator, name
        assert entry.citation or entry.missing, name
        if entry.generator:
            assert callable(getattr(datasets, entry.generator))
        if entry.openml and entry.openml.labels and entry.expected:
            assert set(entry.openml.labels.values()) == set(entry.expected.classes), name
    text = resources.files("validation.datasets").joinpath("expected.toml").read_text(encoding="utf-8")
    assert '"/' not in text  # an absolute path
    data_ids = [row["openml"]["id"] for row in tomllib.loads(text)["dataset"] if "openml" in row]
    assert len(data_ids) == len(set(data_ids)) >= 15


# --- the command


@pytest.fixture
def triad():
    app = typer.Typer()
    app.command("data")(data)
    app.callback()(lambda: None)

    def run(*arguments):
        result = CliRunner().invoke(app, ["data", *arguments], env={"COLUMNS": "200"})
        assert result.exception is None or isinstance(result.exception, SystemExit)
        return result.exit_code, result.output

    return run


def test_command_lists_each_set_with_its_size_and_where_it_would_come_from(triad, folder):
    write(folder, compress(CSV))
    code, text = triad()
    assert code == 0
    lines = {line.split()[0]: line.split()[1:] for line in text.splitlines() if line.strip()}
    assert lines["tiny"] == ["4", "2", "2", "-", "$TRIAD_DATA"]
    assert lines["iris"] == ["150", "4", "3", "-", "scikit-learn", "(bundled)"]
    assert lines["glass"][-2:] == ["OpenML", "(download)"]
    assert lines["svmguide2"][-2:] == ["needs", "$TRIAD_DATA"]
    assert lines["airline"][-1] == "missing"
    assert lines["waveform"][-1] == "generated"


def test_command_shows_one_set_with_its_counts(triad, folder):
    write(folder, compress(CSV))
    code, text = triad("tiny")
    assert code == 0
    for part in ("2: 2, 10: 2", "4 x 2", "x2", "nobody", hashlib.sha256(compress(CSV)).hexdigest()):
        assert part in text
    code, text = triad("airline")
    assert code == 0
    assert "why missing" in text


def test_command_shows_a_set_at_openml_without_fetching_it(triad):
    code, text = triad("segment")  # the fixture lets every download fail
    assert code == 0
    assert "data id 36" in text
    assert "BRICKFACE: 330" in text


def test_command_suggests_near_misses_and_exits_two(triad):
    code, text = triad("glas")
    assert code == 2
    assert "did you mean glass?" in text
    assert triad("qqqqqq")[0] == 2


def test_command_checks_what_is_at_hand_and_exits_one_on_a_bad_copy(triad, folder):
    write(folder, compress(CSV))
    code, text = triad("--check")
    assert code == 0
    assert "5 of 5 data sets are as expected" in text
    write(folder, compress(CSV), d="3")
    code, text = triad("--check")
    assert code == 1
    assert "FAIL tiny" in text
    assert "d: found 2, expected 3" in text
    assert "4 of 5 data sets are as expected" in text


def test_command_check_of_one_name_goes_to_openml(triad, monkeypatch):
    code, text = triad("glass", "--check")
    assert code == 1
    assert "no network in tests" in text
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(214, 9)), columns=list("abcdefghi"))
    answer(monkeypatch, frame, glass_target())
    code, text = triad("glass", "--check")
    assert code == 0
    assert "PASS glass" in text


def test_command_reports_a_broken_manifest_and_exits_one(triad, folder):
    (folder / "manifest.toml").write_text("[[dataset]\n")
    code, text = triad()
    assert code == 1
    assert "no readable TOML" in text


def test_environment_is_read_at_each_call(folder, monkeypatch):
    write(folder, compress(CSV))
    assert data_folder() == folder
    assert list(read_manifest(folder)[0]) == ["tiny"]
    assert datasets.known_names()[-1] == "tiny"
    monkeypatch.setenv("TRIAD_DATA", "")
    assert data_folder() is None
    assert "tiny" not in datasets.known_names()
