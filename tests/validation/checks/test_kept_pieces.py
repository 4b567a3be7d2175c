"""The checks of what is kept of one latent function, of kernels, starts and visits, and a mistake in each."""

import pytest

_BLOCKS, _KERNELS = "identity/x-gpc/kept_blocks", "identity/svi/kept_kernels"
_MATRICES, _STARTS = "identity/laplace/kept_matrices", "identity/nested-ep/starts_near_the_end"
_ROWS, _HELD, _PATHS = (
    "identity/svi/kept_rows",
    "identity/vi-jj/kept_matrices",
    "identity/gibbs-softmax/kept_references",
)
_GO_ON, _PRODUCTS = "identity/x-gpc/searches_go_on", "identity/sep/kept_products"
_BEGIN, _WORK = "identity/ep/kept_beginnings", "identity/ep/work_ends"
_ENDS = "identity/vb-probit/products_end"
_SWEEP, _SEARCH = "fast.one_latent.quadratic_sweep", "fast.one_latent.quadratic_search"
_ENGINES, _JJ = "fast.blockwise.engines", "reference.izmailov2016.algorithm1"
_PLANTED = (
    (_BLOCKS, _SWEEP, "self._seen.add(start)", "pass"),
    (_BLOCKS, _SWEEP, "if 8 * padded(n) * m <= budget", "if 4 * padded(n) * m <= budget"),
    (_BLOCKS, _SEARCH, "prior.block_size, prior.budget)", "prior.block_size, 0)"),
    (_KERNELS, "fast.methods.svi", "self._kernel is None or logs.size", "True"),
    (_KERNELS, "fast.methods.svgpc_svi", "self._asked = (latent_mean, latent_var)", "pass"),
    (
        _MATRICES,
        "fast.full_classes.prior",
        "total = gradient if total is None else total + gradient",
        "total = gradient",
    ),
    (_STARTS, "fast.methods.laplace", "start=start)", "start=None)"),
    (_ROWS, "fast.blockwise.batches", "self._last = wanted, _Rows(X, y)", "return _Rows(X, y)"),
    (_ROWS, _ENGINES, "held.count, held.last = number + 1, sums", "held.count = number + 1"),
    (_ROWS, _ENGINES, "if held.count == number:", "if True:"),
    (_PATHS, "gibbs.models.softmax", "self._built[1] is not root", "False"),
    (_HELD, _JJ, "held = None if learn else", "held = None if not learn else"),
    (_GO_ON, "fast.one_latent.learning", "self.start = self.end_of(posterior)", "pass"),
    (_GO_ON, "fast.one_latent.learning", "again += 1", "again += 0"),
    (_PRODUCTS, "fast.sparse_classes.projections", "self._sums[kind] = sums", "pass"),
    (_WORK, "fast.methods.epgpc_svi", "if not (site_precision[part].any() or site_shift[part].any()):", "if False:"),
    (_WORK, "fast.likelihood.largest", "if live.size == 0:", "if False:"),
    (_WORK, "fast.likelihood.region", "if (np.abs(step) < 1e-3).all():", "if False:"),
    (_ENDS, "fast.methods.vb_probit", "if not norm > tolerance**2 * first:", "if False:"),
    (_BEGIN, "fast.sparse_classes.stream", "with_cross=with_priors", "with_cross=True"),
)
_ASKED = sorted({row[0] for row in _PLANTED})
# modules that have what they use of the planted one by name
_IMPORTERS = {_ENGINES: ("fast.blockwise.batches",), _SWEEP: (_SEARCH,)}


@pytest.mark.parametrize("asked", _ASKED)
def test_healthy_witnesses_pass(reds, asked):
    assert reds("kept_pieces", asked) == []


@pytest.mark.parametrize(("asked", "module", "old", "new"), _PLANTED)
def test_a_planted_mistake_is_seen(reds, asked, module, old, new):
    assert reds("kept_pieces", asked, (module, old, new), _IMPORTERS.get(module, ()))
