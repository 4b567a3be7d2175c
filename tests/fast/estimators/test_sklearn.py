"""Classifiers inside scikit-learn's own machinery: searches, pipelines, parallel folds, tables, weights."""

import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from fast.estimators import LaplaceClassifier, SEPClassifier, XGPClassifier

RNG = np.random.default_rng(3)
X = RNG.normal(size=(40, 2))
Y = np.where(X[:, 0] + 0.5 * X[:, 1] > 0.0, "up", "down")
MODELS = (
    XGPClassifier(n_inducing=5, learn=(), random_state=0),
    SEPClassifier(n_inducing=5, learn=(), max_iter=20, random_state=0),
    LaplaceClassifier(hyperparameters="fixed"),
)
each = pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)


@pytest.fixture(scope="module", autouse=True)
def processes_end():
    """joblib keeps its processes for whoever comes next: here nobody does."""
    yield
    get_reusable_executor().shutdown(wait=True)


@each
def test_parallel_folds_give_the_scores_of_folds_one_after_another(model):
    pipeline = make_pipeline(StandardScaler(), model)
    alone = cross_val_score(pipeline, X, Y, cv=2)
    assert alone.min() > 0.7
    np.testing.assert_array_equal(cross_val_score(pipeline, X, Y, cv=2, n_jobs=2), alone)


@each
def test_a_search_over_a_table_knows_the_columns(model):
    table = pd.DataFrame(X, columns=["left", "right"])
    search = GridSearchCV(model, {"variance": [0.5, 2.0]}, cv=2, scoring="neg_log_loss", error_score="raise")
    search.fit(table, pd.Series(Y))
    assert list(search.best_estimator_.feature_names_in_) == ["left", "right"]
    assert set(search.predict(table)) <= {"up", "down"}


@each
def test_weights_of_rows_are_refused_by_name(model):
    expected = rf"sample_weight: found it in {type(model).__name__}\.fit, expected None"
    with pytest.raises(TypeError, match=expected):
        model.fit(X, Y, sample_weight=np.ones(40))
    with pytest.raises(TypeError, match="sample_weight: found it"):
        make_pipeline(model).fit(X, Y, **{f"{type(model).__name__.lower()}__sample_weight": np.ones(40)})
    assert model.fit(X, Y, sample_weight=None).score(X, Y) > 0.7
