"""Reports of a run, all of the same content: text for terminals, JSON for programs, one page for people, a badge.

``summary`` gathers outcomes per kind and per group (layer type, solver, feature); the others show it.
"""

from __future__ import annotations

from conformance.report.badge import badge
from conformance.report.machine import as_json
from conformance.report.page import page
from conformance.report.summary import CLASSES, Report, Summary, one_line, summarize
from conformance.report.text import print_report

__all__ = ["CLASSES", "Report", "Summary", "as_json", "badge", "one_line", "page", "print_report", "summarize"]
