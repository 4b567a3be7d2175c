"""Draw docs/_static/triangle.svg: the triangle that the judge closes, and three posteriors of one flower on one axis.

    python docs/picture.py              compute (half a minute) and draw
    python docs/picture.py --check      compute, and exit 1 if the picture at hand shows other numbers

The problem is `iris`: 60 flowers of two overlapping species, a full Gaussian process with the logit link. `reference`
and `fast` answer by x-gpc; the draws of `gibbs` are those of the exact posterior. Shown is the latent value of the
flower whose variance x-gpc underestimates most. The numbers stand in the <desc> of the picture too.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
from html import escape, unescape
from pathlib import Path

import numpy as np

from gibbs.core.options import LogitOptions
from gibbs.models import sampling
from validation import problems, solve, truth
from validation.door.storage import write_text
from validation.implementations.gibbs.asked import one_latent

PICTURE = Path(__file__).resolve().parent / "_static" / "triangle.svg"
PROBLEM, METHOD = "iris", "x-gpc"
BINS, CHAINS, DRAWS = 40, 8, 2000

# a histogram of so many draws, thinned by their correlation, is right to about a twentieth of its largest bar
HISTOGRAM = 0.05


def numbers() -> dict[str, object]:
    """What the picture shows, rounded to the digits that it shows."""
    problem = problems.get(PROBLEM)
    printed, optimised = solve("reference", METHOD, problem), solve("fast", METHOD, problem)
    exact = truth.load(PROBLEM).solution
    ratios = printed.latent_cov[:, 0, 0] / exact.latent_cov[:, 0, 0]
    flower = int(np.argmin(ratios))
    chains = sampling.sample(*one_latent(problem), LogitOptions(n_chains=CHAINS, n_draws=DRAWS, n_warmup=200, seed=1))
    middle, width = exact.latent_mean[flower, 0], math.sqrt(exact.latent_cov[flower, 0, 0])
    left, right = round(middle - 3.2 * width, 2), round(middle + 3.8 * width, 2)
    density, _ = np.histogram(chains.latent_draws[:, :, flower], bins=BINS, range=(left, right), density=True)
    return {
        "flower": flower,
        "range": [left, right],
        "mean": round(float(printed.latent_mean[flower, 0]), 4),
        "deviation": round(math.sqrt(printed.latent_cov[flower, 0, 0]), 4),
        "density": [round(float(value), 3) for value in density],
        "variance": round(float(ratios[flower]), 2),
        "apart": _power(float(np.abs(printed.latent_mean - optimised.latent_mean).max())),
        "bound": round(printed.log_evidence, 2),
        "log_evidence": round(exact.log_evidence, 2),
        "error": round(exact.log_evidence_se, 3),
    }


def _power(value: float) -> int:
    """The power of ten below which a difference stays: its digits are rounding's."""
    return math.ceil(math.log10(max(value, 1e-16)))


def same(shown: dict[str, object], made: dict[str, object]) -> bool:
    """Whether two sets of numbers are one: all but rounding's own power of ten, and draws within their noise."""
    densities = np.array([shown["density"], made["density"]], dtype=float)
    near = np.abs(densities[0] - densities[1]).max() <= HISTOGRAM * densities.max()
    power = max(int(numbers["apart"]) for numbers in (shown, made)) <= -8
    rest = {key: value for key, value in shown.items() if key not in ("density", "apart")}
    return bool(near) and power and rest == {key: made[key] for key in rest}


def read(text: str) -> dict[str, object]:
    """The numbers of a picture, from its <desc>."""
    match = re.search(r"<desc>(.*?)</desc>", text, re.DOTALL)
    return {} if match is None else json.loads(unescape(match[1]))


# -- drawing ------------------------------------------------------------------------------------------------------

_STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
.ink { fill: var(--picture-ink, #1d2229); } .soft { fill: var(--picture-soft, #5a6472); font-size: 12px; }
.name { font-weight: 600; } .line { stroke: var(--picture-soft, #5a6472); }
.draws { fill: var(--picture-draws, #c3c9d1); } .wide { stroke: #2f7de1; } .dash { stroke: #e8791c; }
@media (prefers-color-scheme: dark) {
  .ink { fill: var(--picture-ink, #e4e8ed); } .soft { fill: var(--picture-soft, #9aa5b3); }
  .line { stroke: var(--picture-soft, #9aa5b3); } .draws { fill: var(--picture-draws, #4a525d); }
}
"""
_PLOT = (430, 40, 830, 250)  # left, top, right, bottom


def draw(n: dict) -> str:
    """The picture as SVG, of the numbers alone."""
    title = "Three witnesses: reference and fast give one posterior, gibbs the exact one"
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 850 300" role="img" class="triangle">',
        f"<title>{title}</title><desc>{escape(json.dumps(n), quote=False)}</desc><style>{_STYLE}</style>",
        # two halves: on a phone the page sets one below the other
        '<g class="left">',
        *_triangle(n),
        '</g><g class="right">',
        *_plot(n),
        "</g></svg>",
    ]
    return "\n".join(parts) + "\n"


def _triangle(n: dict) -> list[str]:
    reference, fast, gibbs = (62, 64), (346, 64), (204, 238)
    edges = [(reference, fast), (reference, gibbs), (fast, gibbs)]
    parts = [f'<line class="line" x1="{a[0]}" y1="{a[1]}" x2="{b[0]}" y2="{b[1]}"/>' for a, b in edges]
    nodes = ((reference, "reference", "the papers, literally", -34), (fast, "fast", "other algebra", -34),
             (gibbs, "gibbs", "the exact posterior", 26))  # fmt: skip
    for (x, y), name, told, shift in nodes:
        parts.append(f'<circle class="ink" cx="{x}" cy="{y}" r="5"/>')
        parts.append(_text(x, y + shift, name, "ink name", "middle"))
        parts.append(_text(x, y + shift + 16, told, "soft", "middle"))
    gap = f"{n['bound'] - n['log_evidence']:+.2f}".replace("-", "\N{MINUS SIGN}")
    told = (f"means agree to 1e{n['apart']}", f"log Z {gap} ± {n['error']:.3f} nat:", "a bound, as it must be")
    parts += [_text(204, 84 + 19 * line, words, "ink", "middle") for line, words in enumerate(told)]
    return parts


def _plot(n: dict) -> list[str]:
    left, top, right, bottom = _PLOT
    low, high = n["range"]
    heights, bars = n["density"], len(n["density"])
    tallest = 1.05 / (n["deviation"] * math.sqrt(2.0 * math.pi))

    def x(value: float) -> float:
        return left + (value - low) / (high - low) * (right - left)

    def y(value: float) -> float:
        return bottom - value / tallest * (bottom - top)

    width = (right - left) / bars
    parts = [
        f'<rect class="draws" x="{left + i * width:.1f}" y="{y(height):.1f}" width="{width - 0.6:.1f}" '
        f'height="{bottom - y(height):.1f}"/>'
        for i, height in enumerate(heights)
        if height
    ]
    grid = np.linspace(low, high, 121)
    curve = np.exp(-0.5 * ((grid - n["mean"]) / n["deviation"]) ** 2) / (n["deviation"] * math.sqrt(2.0 * math.pi))
    path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in zip(grid, curve, strict=True))
    parts.append(f'<polyline class="wide" points="{path}" fill="none" stroke-width="5" stroke-opacity="0.75"/>')
    parts.append(f'<polyline class="dash" points="{path}" fill="none" stroke-width="2" stroke-dasharray="7 6"/>')
    parts.append(f'<line class="line" x1="{left}" y1="{bottom}" x2="{right}" y2="{bottom}"/>')
    for tick in range(math.ceil(low), math.floor(high) + 1):
        parts.append(f'<line class="line" x1="{x(tick):.1f}" y1="{bottom}" x2="{x(tick):.1f}" y2="{bottom + 5}"/>')
        parts.append(_text(x(tick), bottom + 19, str(tick), "soft", "middle"))
    sign = "virginica" if n["mean"] > 0.0 else "versicolor"
    parts.append(_text((left + right) / 2, bottom + 38, f"latent value of one iris (a {sign}), posterior density",
                       "soft", "middle"))  # fmt: skip
    parts += [
        '<line class="wide" x1="682" y1="34" x2="706" y2="34" stroke-width="5" stroke-opacity="0.75"/>',
        '<line class="dash" x1="682" y1="54" x2="706" y2="54" stroke-width="2" stroke-dasharray="7 6"/>',
        '<rect class="draws" x="682" y="68" width="24" height="12"/>',
        _text(714, 39, "x-gpc by reference", "ink", "start"),
        _text(714, 59, "x-gpc by fast", "ink", "start"),
        _text(714, 79, "draws by gibbs", "ink", "start"),
        _text(714, 103, "variance of x-gpc:", "soft", "start"),
        _text(714, 119, f"{n['variance']:.2f} of the truth", "soft", "start"),
    ]
    return parts


def _text(x: float, y: float, text: str, kind: str, anchor: str) -> str:
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def main() -> int:
    """Exit 1 with --check where the picture shows something else."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="draw nothing; exit 1 if the picture shows other numbers")
    asked, made = parser.parse_args(), numbers()
    if not asked.check:
        write_text(PICTURE, draw(made))
        return 0
    shown = read(PICTURE.read_text(encoding="utf-8"))
    if same(shown, made):
        return 0
    sys.stderr.write(f"{PICTURE.name}: found {shown}, expected {made}; run python docs/picture.py\n")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
