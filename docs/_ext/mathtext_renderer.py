r"""Formulas as inline SVG through Matplotlib's mathtext: no script and no font from elsewhere is needed to read them.

Mathtext sets one line at a time, so a display is split at every `\\`. A formula that it cannot set is a warning, and
with `-W` an error. Colour is `currentColor`, so that dark mode needs no second picture.
"""

from __future__ import annotations

import html
import io
import re
from functools import cache
from typing import Any

import matplotlib as mpl
from docutils import nodes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.mathtext import MathTextParser
from sphinx.application import Sphinx
from sphinx.util import logging

logger = logging.getLogger(__name__)

_POINTS = 10.0  # size at which a formula is set; one em of the page
_PARSER = MathTextParser("path")
_FONT = FontProperties(size=_POINTS, math_fontfamily="cm")
_INK = "#010203"  # stands for the colour of the text, exchanged below
_SETTINGS = {"svg.fonttype": "path", "svg.hashsalt": "gpc-triad", "text.color": _INK}


@cache
def _svg(line: str) -> str:
    """One line of mathematics as an <svg> element that stands on the baseline of its surroundings."""
    source = f"${line}$"
    with mpl.rc_context(_SETTINGS):
        width, height, depth, _, _ = _PARSER.parse(source, dpi=72, prop=_FONT)
        pad = 0.08 * _POINTS
        size = width + 2 * pad, height + 2 * pad
        figure = Figure(figsize=(size[0] / 72, size[1] / 72))
        figure.patch.set_alpha(0.0)
        figure.text(pad / size[0], (depth + pad) / size[1], source, fontproperties=_FONT)
        buffer = io.StringIO()
        FigureCanvasSVG(figure).print_svg(buffer, metadata={"Date": None, "Creator": None})
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL).replace(_INK, "currentColor")
    head, body = text.split(">", 1)
    # ids are global on a page: glyphs of two formulas must not be mixed up
    mark = f"m{abs(hash_of(line)):x}"
    body = re.sub(r'id="', f'id="{mark}-', body).replace('href="#', f'href="#{mark}-').replace("url(#", f"url(#{mark}-")
    box = re.search(r'viewBox="([^"]+)"', head)
    style = (
        f"width:{size[0] / _POINTS:.3f}em;height:{size[1] / _POINTS:.3f}em;"
        f"vertical-align:{-(depth + pad) / _POINTS:.3f}em"
    )
    label = html.escape(line, quote=True)
    view = box.group(1) if box else f"0 0 {size[0]} {size[1]}"
    return (
        f'<svg class="formula" role="img" aria-label="{label}" viewBox="{view}" style="{style}" '
        f'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink">{body.strip()}'
    )


def hash_of(text: str) -> int:
    """A number that is the same in every process."""
    value = 0
    for character in text:
        value = (value * 131 + ord(character)) % (1 << 48)
    return value


# what TeX knows and mathtext does not, in words that it knows; sizes of brackets are left to it
_SPELLINGS = (
    (r"\\tfrac(?![a-zA-Z])", r"\\frac"),
    (r"\\ge(?![a-zA-Z])", r"\\geq"),
    (r"\\le(?![a-zA-Z])", r"\\leq"),
    (r"\\[bB]igg?[lr]?(?![a-zA-Z])", ""),
    (r"\\[lr]Vert(?![a-zA-Z])", r"\\|"),
    (r"\\[lr]vert(?![a-zA-Z])", "|"),
)
# TeX takes a lone character or command for an argument, mathtext wants braces: the first argument, then the second of
# a fraction, whose first may hold braces two deep
_TOKEN = r"\s*(\\[a-zA-Z]+|[^\s\\{\[])"
_BRACED = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
_ARGUMENTS = (
    (rf"(\\(?:[dt]?frac|sqrt)(?![a-zA-Z])){_TOKEN}", r"\1{\2}"),
    (rf"(\\[dt]?frac\s*{_BRACED}){_TOKEN}", r"\1{\2}"),
)


def _spelt(source: str) -> str:
    for pattern, words in _ARGUMENTS + _SPELLINGS:
        source = re.sub(pattern, words, source)
    return source


def _lines(source: str) -> list[str]:
    parts = re.split(r"\\\\", _spelt(source))
    return [" ".join(part.replace("&", "").split()) for part in parts if part.strip()]


def _render(node: nodes.Element, line: str) -> str:
    try:
        return _svg(line)
    except ValueError as error:
        logger.warning("mathtext cannot set %r: %s", line, str(error).strip().splitlines()[-1], location=node)
        return f"<code>{html.escape(line)}</code>"


def visit_math(self: Any, node: nodes.Element) -> None:
    """A formula within a line."""
    self.body.append(_render(node, " ".join(_lines(node.astext()))))
    raise nodes.SkipNode


def visit_math_block(self: Any, node: nodes.Element) -> None:
    """A displayed formula."""
    # mathtext has no display style: fractions are set large by name
    source = node.astext().replace(r"\frac", r"\dfrac")
    rows = "".join(f"<div>{_render(node, line)}</div>" for line in _lines(source))
    self.body.append(f'<div class="display">{rows}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the renderer."""
    app.add_html_math_renderer("mathtext", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
