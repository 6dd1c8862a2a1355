"""The formulas behind the bounds: recorded arrays, all of them, lie within their bounds, and not far inside.

That needs nothing of refcaffe but the schema: it shows that the formulas are the original's.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from conformance.bounds import bounds_of
from conformance.bounds.formula import find
from conformance.bounds.recurrent import _sigmoid
from conformance.bounds.running import Bounded, bounded
from conformance.cases import Case, find_cases, read_case
from conformance.cli import UsageError, default_fixtures

try:
    LAYERS = default_fixtures() / "layer"
except UsageError:
    pytest.skip("no recorded cases here", allow_module_level=True)


Shares = Callable[[np.ndarray, Bounded], np.ndarray]


def bounded_arrays(case: Case) -> list[str]:
    """Names of the recorded arrays of class libm or blas."""
    return [
        name
        for name in case.recorded.arrays
        if not name.startswith("setup.") and case.exactness(name.split(".")[1]) != "bitwise"
    ]


CASES = [case for case in find_cases(LAYERS) if "fatal" not in case.recorded.values and bounded_arrays(case)]
GROUPS = sorted({case.group for case in CASES})


@pytest.mark.parametrize("group", GROUPS)
def test_recorded_arrays_are_within_their_bounds_and_not_far_inside(group: str, shares: Shares) -> None:
    nearest: dict[str, float] = defaultdict(float)
    for case in (case.fresh() for case in CASES if case.group == group):
        bounds = bounds_of(case)
        for name in bounded_arrays(case):
            recorded = case.recorded.arrays[name]
            if name not in bounds:  # no gradient is written there
                assert not recorded.any(), f"{case.id}: {name}"
                continue
            assert bounds[name].shape == recorded.shape
            share = shares(recorded, bounds[name])
            assert (share <= 1).all(), f"{case.id}: {name}"
            group_of_arrays = name.split(".")[1]
            nearest[group_of_arrays] = max(nearest[group_of_arrays], float(share.max(initial=0)))
    # A loss may well be a sum without an error; everything else must come near its bound in some case.
    for group_of_arrays in nearest.keys() - {"loss"}:
        exact = group == "batch_norm" and group_of_arrays == "param_diff"  # it has none: all zeros
        assert exact or nearest[group_of_arrays] > 0.05, group_of_arrays


def test_arrays_that_are_bitwise_have_no_bound() -> None:
    assert not bounds_of(read_case(LAYERS / "relu/default"))
    assert set(bounds_of(read_case(LAYERS / "embed/fillers"))) == {"s0.loss", "s2.param_diff.0", "s2.param_diff.1"}


@pytest.mark.parametrize(
    ("case", "old", "new"),
    [
        ("batch_norm/train-eps", "eps: 0.5", "eps: 0.50001"),
        ("batch_norm/train-eps", "fraction: 0.5", "fraction: 0.50001"),
        ("contrastive_loss/margin", "margin: 2.5", "margin: 2.5001"),
        ("convolution/dilation", "dilation: 2", "dilation: 1 stride: 2"),
        ("eltwise/sum-coeff", "-0.5", "-0.50001"),
        ("elu/alpha", "alpha: 0.5", "alpha: 0.50001"),
        ("exp/base-10-scale-shift", "scale: 0.3", "scale: 0.30001"),
        ("infogain_loss/normalization-full", "FULL", "BATCH_SIZE"),
        ("inner_product/transpose", "transpose: true", ""),
        ("log/base-10-scale-shift", "shift: 3", "shift: 3.0001"),
        ("lrn/size-3", "alpha: 0.5", "alpha: 0.50001"),
        ("lrn/size-3", "beta: 1.5", "beta: 1.50001"),
        ("lrn/size-3", "ACROSS_CHANNELS", "WITHIN_CHANNEL"),
        ("mvn/eps", "eps: 0.5", "eps: 0.50001"),
        ("power/root-scale-shift", "power: 0.5", "power: 0.50001"),
        ("reduction/sumsq-coeff", "SUMSQ", "ASUM"),
        ("reduction/sumsq-coeff", "coeff: 3", "coeff: 3.0001"),
        ("softmax_with_loss/normalization-valid", "VALID", "FULL"),
        ("softmax_with_loss/normalization-valid", "ignore_label: 0", "ignore_label: 1"),
        ("swish/beta", "beta: 1.5", "beta: 1.50001"),
    ],
)
def test_a_slightly_different_definition_is_out_of_bounds(
    tmp_path: Path, case: str, old: str, new: str, shares: Shares
) -> None:
    folder = tmp_path / "case"
    shutil.copytree(LAYERS / case, folder)
    text = (folder / "layer.prototxt").read_text()
    assert old in text
    (folder / "layer.prototxt").write_text(text.replace(old, new))
    changed = read_case(folder)
    try:
        bounds = bounds_of(changed)
    except ValueError:  # the recorded arrays do not even fit
        return
    assert any(
        bound.shape != changed.recorded.arrays[name].shape or (shares(changed.recorded.arrays[name], bound) > 1).any()
        for name, bound in bounds.items()
    )


@pytest.mark.parametrize("device", [False, True])
def test_a_sigmoid_whose_exp_is_too_large_is_next_to_0(device: bool) -> None:
    with np.errstate(all="ignore"):
        x = np.array([-150, -88.75, -88.5, 0])
        result = _sigmoid(bounded(x), device)
        computed = (1 / (1 + np.exp(-x.astype(np.float32)))).astype(float)
    assert (np.abs(computed - result.value) <= result.error).all()
    assert (result.error[:2] < 1e-38).all() and (result.error[2:] < 1e-6).all()


def test_a_margin_that_rounding_decides_on_allows_the_whole_gradient() -> None:
    from refcaffe.proto import caffe_pb2

    layer = caffe_pb2.LayerParameter(type="ContrastiveLoss")
    layer.contrastive_loss_param.margin = 2.0
    layer.contrastive_loss_param.legacy_version = True
    known = find("ContrastiveLoss")
    assert known is not None
    formula = known(layer, True, Path())
    a, b, similar = Bounded([[1.0, 1.0]]), Bounded([[0.0, 0.0]]), Bounded([0.0])
    formula.forward([a, b, similar], [])
    gradient = formula.backward([], [Bounded(1.0)], [a, b, similar], [True, True, False])[0]
    assert gradient is not None
    assert (gradient.value == 0).all() and (gradient.error >= 1).all()
