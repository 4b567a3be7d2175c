"""Sweeps over latent values and kernel parameters θ together, for each likelihood.

Two moves of θ are interwoven (Yu & Meng 2011), because each fails where the other works:

    sufficient   θ given a Gaussian vector v ~ N(0, S(θ) + extra): Hamiltonian steps on hand-derived gradients.
                 logit: v = y/(2ω), extra 1/ω, f integrated out given ω (it is drawn right after); probit: v = h,
                 extra 1, f integrated out; threshold: v = h = f; softmax: v = f. Narrow: many values say much about θ.
                 The labels enter through v alone, p(y | v) is free of θ, so what stays is

                     p(log θ | v) ∝ p(log θ) Π_c N(v_c; 0, S(θ) + extra)

                 over the c latents of a block. Logit: p(y, ω | f) ∝ exp(½ y f - ½ ω f²) p(ω) is N(v; f, 1/ω) up to a
                 factor without f and θ, whose integral over f ~ N(0, S) is N(v; 0, S + 1/ω).
    ancillary    θ given ν, where the smooth part g = chol(S_g(θ)) ν: slices on the likelihood. For constraints the part
                 e = h - g of each value is integrated out but for that of the label's own class, e_y = sd u:
                 p(y | g, u) = (1 - ε) Π_{j≠y} Φ((g_y + sd_y u - g_j)/sd_j) + ε/C, smooth and without quadrature.
                 ν and u are standard normal whatever θ, so there is no Jacobian and what stays is

                     p(log θ | ν, u, y) ∝ p(log θ) Π_i p(y_i | g_i(θ), u_i, sd(θ)),

                 all blocks together, one moved at a time. S_g is the covariance of f without its noise and a tenth of
                 the variance (noise, 1 more for the probit) that h has on its own, sd² the other nine tenths; without
                 any such variance g = f and Φ is a step. Binary probit: u, too, is integrated out, Φ(± g/sd).
                 (ν, u) are drawn given h and θ before the move, h given (ν, u, y) and the new θ after it.

The end of a sweep is a draw of (θ, auxiliary, f) together, so what is averaged given θ and the auxiliary is right.
riihimaki2013, section 4.2, alternates latent values and Hamiltonian steps of θ given f.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, log_ndtr, logsumexp, softmax

from gibbs.chains.chain import State
from gibbs.core.errors import Array, NotPositiveDefiniteError
from gibbs.core.hyperpriors import Hyperprior, LogDensity, joint_log_density
from gibbs.core.linalg import REMEDY, Flags, cholesky, factor, solve, solve_triangles
from gibbs.draws.univariate_truncated import draw_above, draw_below
from gibbs.ledger import equation
from gibbs.models.hyper_covariance import Design, covariance, log_normal_density, one_block
from gibbs.models.logit import draw_latent, draw_omega, scale_move
from gibbs.moves.hyper import hamiltonian_move, slice_move
from gibbs.moves.region import Labels, bounce_move, log_step, swap_to_label

Rows = NDArray[np.int64]
Generators = Mapping[str, np.random.Generator]
LIKELIHOODS = ("logit", "probit", "softmax", "multinomial-probit", "threshold")
BINARY = ("logit", "probit")
WALLS = ("probit", "multinomial-probit", "threshold")
PURPOSES = ("start", "auxiliary", "latent", "gradient", "white", "bounce", "predict")

# |log θ| beyond which a proposal is refused, as a problem's fields are (1e-50 to 1e50)
LARGEST_LOG = 115.0
SMOOTHING = 0.1  # share of the noise of h that goes into g: keeps chol(S_g) well away from singular
SLICE_WIDTH = 3.0  # in log θ, about the width of a posterior; any width is exact
TARGET_ACCEPTANCE = 0.8
PREDICTIVE_DRAWS = 8  # of f* per kept draw, for class probabilities of the softmax, which have no closed form
TURNS = 12  # rotations of one path of the latent values
LARGEST_TURN = 0.5 * np.pi / TURNS


class HyperModel(NamedTuple):
    """Everything a sweep needs besides its state."""

    likelihood: str
    design: Design
    y: Labels
    n_classes: int
    epsilon: float
    hyper: Array  # (B, 2 + d) as given: variance, lengthscales, noise
    columns: tuple[int, ...]  # which of them are learnt
    hyperpriors: tuple[Hyperprior, ...]  # one for each column learnt
    n_warmup: int
    n_steps: int  # leapfrog steps

    @property
    def n_latents(self) -> int:
        """L."""
        return 1 if self.likelihood in BINARY else self.n_classes

    @property
    def y_sign(self) -> Array:
        """(n,) -1 and +1, of binary labels."""
        return np.where(self.y == 1, 1.0, -1.0)

    @property
    def auxiliary_noise(self) -> float:
        """Variance of h given f: 1 for the probit, 0 where h = f."""
        return 1.0 if self.likelihood in ("probit", "multinomial-probit") else 0.0

    # -- parameters ------------------------------------------------------------------------------------------

    def log_hyper(self, hyper: Array) -> Array:
        """Logarithms of what is learnt: hyper (..., 2 + d) -> (..., p)."""
        result: Array = np.log(hyper[..., list(self.columns)]).astype(np.float64, copy=False)
        return result

    def with_log(self, hyper: Array, log_hyper: Array) -> Array:
        """hyper (..., 2 + d) with log_hyper (..., p) in the columns learnt."""
        out = hyper.copy()
        out[..., list(self.columns)] = np.exp(np.clip(log_hyper, -LARGEST_LOG, LARGEST_LOG))
        return out

    def log_hyperprior(self, log_hyper: Array) -> LogDensity:
        """log p(log θ), -inf beyond LARGEST_LOG: log_hyper (..., p)."""
        result = joint_log_density(log_hyper, self.hyperpriors)
        within = np.all(np.abs(log_hyper) <= LARGEST_LOG, axis=-1)
        return LogDensity(np.where(within, result.value, -np.inf), result.gradient)

    # -- blocks ----------------------------------------------------------------------------------------------

    def grouped(self, values: Array) -> Array:
        """values (r, L, n) -> (r, B, c, n), c latents a block."""
        B = self.hyper.shape[0]
        return values.reshape(values.shape[0], B, self.n_latents // B, values.shape[-1])

    def per_latent(self, values: Array) -> Array:
        """values (r, B, ...) -> (r, L, ...): what a block has, for each of its latents."""
        return np.repeat(values, self.n_latents // self.hyper.shape[0], axis=1)

    def smooth_part(self, design: Design, hyper: Array) -> tuple[Array, Array, Flags]:
        """chol(S_g) (r, B, n, n), sd of e (r, B), and flags (r, B): hyper (r, B, 2 + d) of the design."""
        S = covariance(design, hyper)
        total = self.auxiliary_noise + hyper[..., -1]
        index = np.arange(S.shape[-1])
        if self.likelihood in WALLS:
            S[..., index, index] += (SMOOTHING * total - hyper[..., -1] * (total > 0.0))[..., None]
        else:
            total = np.zeros_like(total)
        chol, good = factor(S)
        return chol, np.sqrt((1.0 - SMOOTHING) * total), good

    # -- likelihoods -----------------------------------------------------------------------------------------

    def log_inside(self, smooth: Array, sd: Array, own_noise: Array) -> Array:
        """Σ_{j≠y} log Φ((g_y + sd_y u - g_j)/sd_j): smooth g (k, L, n), sd (k, L), own_noise u (k, n) -> (k, n).

        sd_j = 0 is a constraint: 0 inside, -inf outside.
        """
        data = np.arange(self.y.size)
        own = smooth[:, self.y, data] + sd[:, self.y] * own_noise
        gap = own[:, None, :] - smooth
        with np.errstate(divide="ignore", invalid="ignore"):
            z = gap / sd[..., None]
        z[(gap == 0.0) & (sd[..., None] == 0.0)] = np.inf
        terms = log_ndtr(z)
        terms[:, self.y, data] = 0.0
        return terms.sum(axis=1)

    def log_likelihood(self, smooth: Array, sd: Array, own_noise: Array) -> Array:
        """log p(y | g, u), (k,): smooth g (k, L, n), which is f for logit and softmax; sd (k, L), own_noise (k, n)."""
        if self.likelihood == "logit":
            return log_expit(self.y_sign * smooth[:, 0]).sum(axis=-1)
        if self.likelihood == "softmax":
            own = smooth[:, self.y, np.arange(self.y.size)]
            return (own - logsumexp(smooth, axis=1)).sum(axis=-1)
        if self.likelihood == "probit":
            return log_ndtr(self.y_sign * smooth[:, 0] / sd).sum(axis=-1)
        return self._with_errors(self.log_inside(smooth, sd, own_noise)).sum(axis=-1)

    def _with_errors(self, log_inside: Array) -> Array:
        if self.epsilon == 0.0:
            return log_inside
        return np.logaddexp(np.log1p(-self.epsilon) + log_inside, np.log(self.epsilon / self.n_classes))

    # -- moves -----------------------------------------------------------------------------------------------

    @equation("riihimaki2013", "u4.2.1-hmc")
    def sufficient_move(
        self, rng: np.random.Generator, hyper: Array, values: Array, extra: Array | float, step_size: Array
    ) -> tuple[Array, Array, Array]:
        """θ | v ~ N(0, S(θ) + extra) by Hamiltonian steps: (hyper, acceptance (r, B), refused (r, B)).

        hyper (r, B, 2 + d); values v (r, B, c, n); extra: a number or (r, B, n); step_size (r, B). rng: see
        `hamiltonian_move`. With v = f and extra 0, the softmax's, this is the second step of riihimaki2013, 4.2.1.
        """

        def density(log_hyper: Array) -> LogDensity:
            prior = self.log_hyperprior(log_hyper)
            result = log_normal_density(self.design, self.with_log(hyper, log_hyper), values, extra)
            return LogDensity(result.value + prior.value, result.gradient[..., list(self.columns)] + prior.gradient)

        moved = hamiltonian_move(rng, self.log_hyper(hyper), density, step_size, self.n_steps)
        return self.with_log(hyper, moved.position), moved.acceptance, moved.refused

    def ancillary_move(
        self, rng: np.random.Generator, hyper: Array, white: Array, own_noise: Array
    ) -> tuple[Array, Array, Array, Array]:
        """θ | ν, u, y by slices: (hyper, g (r, L, n), sd (r, L), refused (r, B)).

        One slice along each logarithm in turn and one along a random direction, block by block. hyper (r, B, 2 + d);
        white ν (r, B, c, n); own_noise u (r, n). rng: how many numbers it gives is not fixed.
        """
        chol, sd, _ = self.smooth_part(self.design, hyper)
        smooth = np.matmul(white, np.swapaxes(chol, -1, -2))
        hyper, refused = hyper.copy(), np.zeros(hyper.shape[:2])
        p = len(self.columns)
        for b in range(hyper.shape[1]):
            design = one_block(self.design, b)

            def proposed(
                rows: Rows, log_hyper: Array, b: int = b, design: Design = design
            ) -> tuple[Array, Array, Flags]:
                trial = self.with_log(hyper[rows, b : b + 1], log_hyper[:, None])
                chol, deviation, good = self.smooth_part(design, trial)
                g, every = smooth[rows].copy(), sd[rows].copy()
                g[:, b : b + 1] = np.matmul(white[rows, b : b + 1], np.swapaxes(chol, -1, -2))
                every[:, b : b + 1] = deviation
                return g, every, good[:, 0]

            def density(rows: Rows, log_hyper: Array) -> Array:
                g, every, good = proposed(rows, log_hyper)
                flat = g.reshape(rows.size, self.n_latents, -1)
                value = self.log_likelihood(flat, self.per_latent(every), own_noise[rows])
                prior = self.log_hyperprior(log_hyper).value
                return np.where(good, np.where(np.isneginf(prior), np.nan, value + prior), np.nan)

            random = rng.standard_normal((hyper.shape[0], 1, p))
            random /= np.sqrt(np.square(random).sum(axis=-1, keepdims=True))
            axes = np.broadcast_to(np.eye(p), (hyper.shape[0], p, p))
            directions = np.concatenate([axes, random], axis=1) if p > 1 else axes
            for k in range(directions.shape[1]):
                moved = slice_move(rng, self.log_hyper(hyper[:, b]), directions[:, k], density, SLICE_WIDTH)
                hyper[:, b] = self.with_log(hyper[:, b], moved.position)
                refused[:, b] += moved.refused
            result = proposed(np.arange(hyper.shape[0]), self.log_hyper(hyper[:, b]))
            smooth[:, b], sd[:, b] = result[0][:, b], result[1][:, b]
        return hyper, smooth.reshape(hyper.shape[0], self.n_latents, -1), self.per_latent(sd), refused

    def draw_white(self, rng: np.random.Generator, hyper: Array, auxiliary: Array) -> tuple[Array, Array]:
        """Draw ν (r, B, c, n) and u (r, n), (r, 0) of the binary probit, given h: g | h is Gaussian. Constraints only.

        With z, z' standard normal, ν = z + CᵀT⁻¹(h - C z - sd z'), C = chol(S_g), T = S_g + sd². hyper (r, B, 2 + d);
        auxiliary h (r, L, n). rng gives exactly 2 r L n normals.
        """
        chol, sd, _ = self.smooth_part(self.design, hyper)
        h = self.grouped(auxiliary)
        z, noise = rng.standard_normal((2, *h.shape))
        T = np.matmul(chol, np.swapaxes(chol, -1, -2))
        index = np.arange(T.shape[-1])
        T[..., index, index] += np.square(sd)[..., None]
        gap = h - np.matmul(z, np.swapaxes(chol, -1, -2)) - sd[..., None, None] * noise
        solved = np.swapaxes(solve("K_XX with the noise of h", T, np.swapaxes(gap, -1, -2), REMEDY), -1, -2)
        white = z + np.matmul(solved, chol)
        if self.likelihood == "probit":
            return white, np.empty((h.shape[0], 0))  # integrated out
        smooth = np.matmul(white, np.swapaxes(chol, -1, -2)).reshape(auxiliary.shape)
        data, every = np.arange(self.y.size), self.per_latent(sd)[:, self.y]
        own = auxiliary[:, self.y, data] - smooth[:, self.y, data]
        with np.errstate(divide="ignore", invalid="ignore"):
            return white, np.where(every > 0.0, own / every, 0.0)

    def draw_auxiliary(self, rng: np.random.Generator, smooth: Array, sd: Array, own_noise: Array) -> Array:
        """Draw h | g, u, y: g_y + sd_y u for the label, normals below it for the others unless the label is in error.

        smooth g (r, L, n), sd (r, L), own_noise u (r, n). Where sd = 0, h = g. rng gives exactly one exponential an
        entry, and for ε > 0 a uniform a datum and a normal an entry besides.
        """
        deviation = np.broadcast_to(sd[..., None], smooth.shape)
        if self.likelihood == "probit":
            return self.y_sign * draw_above(rng, self.y_sign * smooth, deviation, 0.0)
        data, safe = np.arange(self.y.size), np.where(deviation > 0.0, deviation, 1.0)
        own = smooth[:, self.y, data] + sd[:, self.y] * own_noise
        h = draw_below(rng, smooth, safe, np.broadcast_to(own[:, None, :], smooth.shape))
        if self.epsilon:
            inside = self.log_inside(smooth, sd, own_noise)
            log_error = np.log(self.epsilon / self.n_classes) - self._with_errors(inside)
            error = np.log1p(-rng.random(log_error.shape)) < log_error
            free = smooth + deviation * rng.standard_normal(smooth.shape)
            h = np.where(error[:, None, :], free, h)
        h = np.where(deviation > 0.0, h, smooth)
        h[:, self.y, data] = own
        return h

    def bounce(self, rng: np.random.Generator, hyper: Array, auxiliary: Array) -> Array:
        """Move h | θ, y by a path between the constraints: each chain has covariances of its own.

        hyper (r, B, 2 + d), auxiliary h (r, L, n). rng gives r L n normals (binary: 2 r n).
        """
        T = covariance(self.design, hyper)
        index = np.arange(T.shape[-1])
        T[..., index, index] += self.auxiliary_noise
        chol = cholesky("K_XX with the noise of h", T, REMEDY)
        T, chol = self.per_latent(T), self.per_latent(chol)
        height = log_step(self.epsilon, self.n_classes)
        if self.likelihood == "probit":  # class 0 has a value of prior variance zero
            T, chol = (np.concatenate([np.zeros_like(a), a], axis=1) for a in (T, chol))
            auxiliary = np.concatenate([np.zeros_like(auxiliary), auxiliary], axis=1)
        return bounce_move(rng, auxiliary, T, chol, self.y, log_height=height).auxiliary[:, -self.n_latents :]

    # -- runs ------------------------------------------------------------------------------------------------

    def start(self, rng: np.random.Generator, n_chains: int, n_test: int) -> State:
        """A state inside the constraints, parameters around those given. n_chains r; n_test t. rng: see `PURPOSES`."""
        centre = np.broadcast_to(self.hyper, (n_chains, *self.hyper.shape)).copy()
        zero = [
            (j, hyperprior)
            for j, hyperprior in zip(self.columns, self.hyperpriors, strict=True)
            if np.any(centre[..., j] == 0.0)
        ]
        for j, hyperprior in zero:  # a noise to be learnt that is given as zero has no logarithm
            centre[..., j] = hyperprior.scale**2 if hyperprior.root else hyperprior.scale
        for width in (0.7, 0.3, 0.0):  # nearer to what is given where a covariance cannot be factorised
            log_hyper = self.log_hyper(centre)
            hyper = self.with_log(centre, log_hyper + width * rng.standard_normal(log_hyper.shape))
            S = covariance(self.design, hyper)
            chol, good = factor(S)
            if good.all():
                break
        else:
            raise NotPositiveDefiniteError(
                f"K_XX {S.shape[-2:]}: found no Cholesky factor at the parameters given, expected one; {REMEDY}"
            )
        factors = rng.permutation(np.geomspace(0.25, 2.0, n_chains)) if n_chains > 1 else np.ones(1)
        white = factors[:, None, None, None] * rng.standard_normal(self.grouped_shape(n_chains))
        latent = np.matmul(white, np.swapaxes(chol, -1, -2)).reshape(n_chains, self.n_latents, -1)
        common = {
            "hyper": hyper,
            "sweep": np.zeros(n_chains),
            "log_step": np.full(hyper.shape[:2], np.log(0.1)),
            "acceptance": np.zeros(hyper.shape[:2]),
            "refused_gradient": np.zeros(hyper.shape[:2]),
            "refused_slice": np.zeros(hyper.shape[:2]),
        }
        if self.likelihood not in WALLS:
            common["log_turn"] = np.full(n_chains, np.log(LARGEST_TURN))
        if self.likelihood == "softmax":
            normals = rng.standard_normal((n_chains, PREDICTIVE_DRAWS, self.n_latents, n_test))
            return {**common, "latent": latent, "normals": normals}
        if self.likelihood == "logit":
            return {**common, "latent": latent, "omega": draw_omega(rng, latent[:, 0])}
        if self.likelihood == "probit":
            return {**common, "latent": np.abs(latent) * self.y_sign}
        latent = swap_to_label(latent, self.y)
        # exchanging values makes them rough, far out under a smooth prior; towards the apex of the regions all is near
        noise = self.auxiliary_noise
        depth = -log_normal_density(self.design, hyper, self.grouped(latent), noise).value
        depth += log_normal_density(self.design, hyper, 0.0 * self.grouped(latent), noise).value
        shrink = np.sqrt(np.minimum(1.0, 0.5 * latent[0].size / depth.sum(axis=1)))
        return {**common, "latent": latent * shrink[:, None, None]}

    def grouped_shape(self, n_chains: int) -> tuple[int, int, int, int]:
        """(r, B, c, n). n_chains: r."""
        B = self.hyper.shape[0]
        return n_chains, B, self.n_latents // B, self.y.size

    def step(self, state: State, rngs: Generators) -> State:
        """One sweep, from state with rngs to a new state: `latent` is f for logit and softmax, h for constraints.

        Step sizes are learnt in the warm-up only.
        """
        sweep = state["sweep"] + 1.0
        held = bool(sweep[0] <= min(20, self.n_warmup // 4))  # latent values find their place first
        new = self._sweep(state, rngs, held)
        warm = bool(sweep[0] <= self.n_warmup) and not held
        gain = sweep[:, None] ** -0.6 if warm else 0.0
        log_step_size = state["log_step"] + gain * (new["acceptance"] - TARGET_ACCEPTANCE)
        new |= {"sweep": sweep, "log_step": log_step_size}
        if "taken" in new:
            tune = sweep**-0.6 if sweep[0] <= self.n_warmup else 0.0
            turn = state["log_turn"] + tune * (new["taken"] - TARGET_ACCEPTANCE)
            new["log_turn"] = np.minimum(turn, np.log(LARGEST_TURN))
        return new

    def _sweep(self, state: State, rngs: Generators, held: bool) -> State:
        hyper, latent = state["hyper"], state["latent"]
        step_size, nothing = np.exp(state["log_step"]), np.zeros(state["hyper"].shape[:2])
        if self.likelihood in WALLS:
            refused = nothing
            if not held:
                white, own_noise = self.draw_white(rngs["latent"], hyper, latent)
                hyper, smooth, sd, refused = self.ancillary_move(rngs["white"], hyper, white, own_noise)
                latent = self.draw_auxiliary(rngs["auxiliary"], smooth, sd, own_noise)
            latent = self.bounce(rngs["bounce"], hyper, latent)
            hyper, acceptance, blocked = self._sufficient(
                rngs, held, hyper, self.grouped(latent), self.auxiliary_noise, step_size
            )
            extra: State = {}
        else:
            chol = cholesky("K_XX", covariance(self.design, hyper), REMEDY)
            white = np.swapaxes(solve_triangles(chol, np.swapaxes(self.grouped(latent), -1, -2)), -1, -2)
            refused = nothing
            if not held:
                none = np.empty((latent.shape[0], 0))  # f has no noise beside it
                hyper, latent, _, refused = self.ancillary_move(rngs["white"], hyper, white, none)
            chol = cholesky("K_XX", covariance(self.design, hyper), REMEDY)
            white, taken = self.rotation_move(rngs["latent"], white, chol, np.exp(state["log_turn"]))
            latent = np.matmul(white, np.swapaxes(chol, -1, -2)).reshape(latent.shape)
            if self.likelihood == "logit":
                factors = scale_move(rngs["white"], white.reshape(latent.shape)[:, 0], self.y_sign * latent[:, 0])
                omega = draw_omega(rngs["auxiliary"], factors[:, None] * latent[:, 0])
                values = (0.5 * self.y_sign / omega)[:, None, None]
                hyper, acceptance, blocked = self._sufficient(
                    rngs, held, hyper, values, 1.0 / omega[:, None], step_size, factorised=True
                )
                K = covariance(self.design, hyper)
                chol = cholesky("K_XX", K, REMEDY)
                for k in range(latent.shape[0]):
                    latent[k, 0] = draw_latent(rngs["latent"], K[k, 0], chol[k, 0], self.y_sign, omega[k])
                extra = {"omega": omega, "taken": taken}
            else:
                latent = self._softmax_latent(rngs, hyper, chol, latent)
                hyper, acceptance, blocked = self._sufficient(rngs, held, hyper, self.grouped(latent), 0.0, step_size)
                extra = {"normals": rngs["predict"].standard_normal(state["normals"].shape), "taken": taken}
        return {
            "hyper": hyper,
            "latent": latent,
            "acceptance": acceptance,
            "refused_gradient": blocked,
            "refused_slice": refused,
            **extra,
        }

    def _sufficient(
        self,
        rngs: Generators,
        held: bool,
        hyper: Array,
        values: Array,
        extra: Array | float,
        step_size: Array,
        factorised: bool = False,
    ) -> tuple[Array, Array, Array]:
        if held:
            zero = np.zeros(hyper.shape[:2])
            return hyper, zero, zero
        moved, acceptance, refused = self.sufficient_move(rngs["gradient"], hyper, values, extra, step_size)
        if factorised:  # with extra variances every S can be factorised; f needs S alone to be
            _, good = factor(covariance(self.design, moved))
            moved = np.where(good[..., None], moved, hyper)
            refused = np.maximum(refused, ~good)
        return moved, acceptance, refused

    def _softmax_latent(self, rngs: Generators, hyper: Array, chol: Array, latent: Array) -> Array:
        """f | θ, y: class by class as a logit with the others' log-sum as offset (Holmes & Held 2006), then one shift.

        p(y | f) as a function of f_c is σ(f_c - o)^[y = c] (1 - σ(f_c - o))^[y ≠ c], o = log Σ_{j≠c} exp f_j; given
        ω ~ PG(1, f_c - o) the observation o + (±1)/(2ω) has variance 1/ω.
        """
        K, chol = self.per_latent(covariance(self.design, hyper)), self.per_latent(chol)
        latent = latent.copy()
        for c in range(self.n_latents):
            offset = logsumexp(np.delete(latent, c, axis=1), axis=1)
            omega = draw_omega(rngs["auxiliary"], latent[:, c] - offset)
            shifted = np.where(self.y == c, 1.0, -1.0) + 2.0 * omega * offset
            for k in range(latent.shape[0]):
                latent[k, c] = draw_latent(rngs["latent"], K[k, c], chol[k, c], shifted[k], omega[k])
        return latent + self.draw_shift(rngs["latent"], chol, latent)[:, None]

    def draw_shift(self, rng: np.random.Generator, chol: Array, latent_values: Array) -> Array:
        """Draw δ (r, n) such that f_c + δ, the same δ for every class, leaves p(f | y) invariant: softmax.

        The likelihood does not see δ, so N(-A⁻¹ Σ_c K_c⁻¹ f_c, A⁻¹), A = Σ_c K_c⁻¹: class by class it would move by
        small steps. chol (r, L, n, n) of K_c; latent_values (r, L, n). No shift where some K_c is too near singular for
        its inverse. rng gives exactly r n normals.
        """
        normals = rng.standard_normal((latent_values.shape[0], self.y.size, 1))
        if self.hyper.shape[0] == 1:  # one K: the mean is -average of f, the covariance K/L
            drawn: Array = np.matmul(chol[:, 0], normals)[..., 0] / np.sqrt(self.n_latents)
            return drawn - latent_values.mean(axis=1)
        diagonal = np.einsum("rlii->rli", chol)
        sound = np.all(diagonal.min(axis=-1) > 1e-5 * diagonal.max(axis=-1), axis=1)  # depends on θ alone: exact
        chol = np.where(sound[:, None, None, None], chol, np.eye(self.y.size))
        inverse_chol = solve_triangles(chol, np.eye(self.y.size))
        precision = np.matmul(np.swapaxes(inverse_chol, -1, -2), inverse_chol)
        weighted = np.matmul(precision, latent_values[..., None]).sum(axis=1)  # (r, n, 1)
        root = cholesky("sum of K_XX⁻¹", precision.sum(axis=1), REMEDY)
        shift = solve_triangles(np.swapaxes(root, -1, -2), normals - solve_triangles(root, weighted))[..., 0]
        return np.where(sound[:, None], shift, 0.0)

    def log_likelihood_gradient(self, latent_values: Array) -> Array:
        """d log p(y | f)/df, (k, L, n): logit and softmax. latent_values f (k, L, n)."""
        if self.likelihood == "logit":
            value: Array = self.y_sign * expit(-self.y_sign * latent_values)
            return value
        one_hot = np.zeros(latent_values.shape[1:])
        one_hot[self.y, np.arange(self.y.size)] = 1.0
        return one_hot - softmax(latent_values, axis=1)

    def rotation_move(self, rng: np.random.Generator, white: Array, chol: Array, turn: Array) -> tuple[Array, Array]:
        """Move ν | θ, y: Hamiltonian steps whose Gaussian part is the exact rotation (Shahbaba et al. 2014).

        TURNS rotations by `turn` (r,) times a random factor in [½, 1½], with kicks by the likelihood between them, and
        a Metropolis decision. white ν (r, B, c, n), chol (r, B, n, n). Returns ν and the acceptance (r,). rng gives
        r L n normals and 2 r uniforms.
        """
        r = white.shape[0]
        back = np.swapaxes(chol, -1, -2)
        none = np.empty((r, 0))  # f has no noise beside it

        def latent_of(nu: Array) -> Array:
            return np.matmul(nu, back).reshape(r, self.n_latents, -1)

        def energy(nu: Array, speed: Array) -> Array:
            squares = 0.5 * (np.square(nu) + np.square(speed)).sum(axis=(1, 2, 3))
            value: Array = self.log_likelihood(latent_of(nu), none, none) - squares
            return value

        def force(nu: Array) -> Array:
            return np.matmul(self.grouped(self.log_likelihood_gradient(latent_of(nu))), chol)

        speed = rng.standard_normal(white.shape)
        angle = (turn * (0.5 + rng.random(r)))[:, None, None, None]
        log_uniform = np.log1p(-rng.random(r))
        cos, sin = np.cos(angle), np.sin(angle)
        before, nu = energy(white, speed), white
        kick = 0.5 * angle * force(nu)
        for _ in range(TURNS):
            speed = speed + kick
            nu, speed = cos * nu + sin * speed, cos * speed - sin * nu
            kick = 0.5 * angle * force(nu)
            speed = speed + kick
        drop = np.minimum(energy(nu, speed) - before, 0.0)
        return np.where((log_uniform < drop)[:, None, None, None], nu, white), np.exp(drop)
