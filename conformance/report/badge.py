"""A badge: the run in one small picture."""

from __future__ import annotations

from html import escape

from conformance.outcome import Status
from conformance.report.summary import Report, summarize

COLOURS = {Status.PASSED: "#2e7d32", Status.FAILED: "#c62828", Status.UNSUPPORTED: "#9a6700"}
_CHARACTER = 6.6  # about as wide as a digit in 11 pixel Verdana or DejaVu
_LABEL = "original Caffe"


def badge(report: Report) -> str:
    """An SVG picture: ``original Caffe | 2012 of 2012 equal``, red if a case failed, amber if one is not supported."""
    whole = summarize(report.outcomes, lambda outcome: "all")["all"]
    text = f"{whole.passed} of {whole.cases} equal" + (f", {whole.failed} failed" if whole.failed else "")
    left, right = (round(len(part) * _CHARACTER) + 12 for part in (_LABEL, text))
    title = escape(f"{_LABEL}: {report.summary}")
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="20" role="img" aria-label="{title}">'
        f"<title>{title}</title>"
        f'<clipPath id="r"><rect width="{left + right}" height="20" rx="3"/></clipPath>'
        f'<g clip-path="url(#r)"><rect width="{left}" height="20" fill="#444"/>'
        f'<rect x="{left}" width="{right}" height="20" fill="{COLOURS[whole.status]}"/></g>'
        '<g fill="#fff" text-anchor="middle" font-family="Verdana,DejaVu Sans,sans-serif" font-size="11">'
        f'<text x="{left / 2}" y="14">{_LABEL}</text>'
        f'<text x="{left + right / 2}" y="14">{escape(text)}</text></g></svg>\n'
    )
