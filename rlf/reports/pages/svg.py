"""Charts as one image that stands by itself: SVG without fonts, scripts or anything to load."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape

from rlf.reports.pages.chart import HEIGHT, WIDTH, Drawn

_TITLE = 24
"""Height of a chart's title."""
_COLOURS = ("#1f6feb", "#d1242f", "#1a7f37", "#9a6700")


def charts_svg(charts: Sequence[Drawn]) -> str:
    """The charts side by side, on white."""
    width, height = WIDTH * len(charts), HEIGHT + _TITLE
    words = escape("; ".join(f"{chart.title}: {chart.summary}" for chart in charts))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="sans-serif" font-size="10" role="img">',
        f"<title>{words}</title>",
        f'<rect width="{width}" height="{height}" fill="#fff"/>',
        *(part for place, chart in enumerate(charts) for part in _draw_chart(chart, place * WIDTH)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _draw_chart(chart: Drawn, left: int) -> Iterator[str]:
    yield f'<g transform="translate({left} {_TITLE})">'
    yield f'<text x="{WIDTH / 2}" y="-8" text-anchor="middle" font-size="12">{escape(chart.title)}</text>'
    for y, text in chart.y_ticks:
        yield f'<path d="M48 {y}H{WIDTH - 22}" stroke="#ddd"/>'
        yield f'<text x="44" y="{y + 3}" text-anchor="end" fill="#555">{escape(text)}</text>'
    for x, text in chart.x_ticks:
        yield f'<text x="{x}" y="{HEIGHT - 8}" text-anchor="middle" fill="#555">{escape(text)}</text>'
    for line in chart.lines:
        colour = _COLOURS[line.colour % len(_COLOURS)]
        if line.band:
            yield f'<path d="{line.band}" fill="{colour}" fill-opacity="0.15"/>'
        yield f'<path d="{line.path}" fill="none" stroke="{colour}" stroke-width="1.5"/>'
        yield f'<circle cx="{line.end[0]}" cy="{line.end[1]}" r="2.5" fill="{colour}"/>'
    yield "</g>"
