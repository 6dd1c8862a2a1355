"""Pixels whose rounding is a codec's or a resize's own affair."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from conformance.cases import Case
from conformance.outcome import Findings

CODEC_LEVELS = 2
"""Gray levels by which two libraries' decoders may differ, for the whole suite: where the recorded pixels are known,

a case starts from those, and everything behind them is exact."""

RESIZE_LEVELS = 1
"""Gray levels by which two resizes may differ, where the recorded pixels are not known."""


def judge_decoded(
    case: Case, recorded: Iterable[tuple[str, Any, np.ndarray]], own: Mapping[Any, np.ndarray], findings: Findings
) -> None:
    """Compare the engine's own pixels with recorded ones: names, keys in ``own``, pixels. Not all need be decoded."""
    exactness = case.exactness()
    bound = CODEC_LEVELS if exactness == "codec" else 0
    for name, key, pixels in recorded:
        if key in own:
            findings.array(name, pixels, own[key], exactness, bound)
