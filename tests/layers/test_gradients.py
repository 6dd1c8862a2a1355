"""Every layer that has a gradient, checked numerically in double precision, with kinks avoided."""

import numpy as np
import pytest

from refcaffe import context
from refcaffe.layers import layer_types
from tests.layers.gradient_check import check_gradient

rng = np.random.default_rng(0)


def spread(*shape, seed=0):
    """Values at least 0.02 apart, none within 0.01 of 0: no maximum is a tie, no kink is near."""
    count = int(np.prod(shape))
    values = (np.arange(count) - count // 2) * 0.05 + 0.02
    return np.random.default_rng(seed).permutation(values).reshape(shape)


def normal(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape)


def positive(*shape):
    return np.abs(normal(*shape)) + 0.5


def labels(count, classes):
    return np.arange(count, dtype=float) % classes


X = (2, 3, 4, 5)
UNARY = {
    "AbsVal": ("", spread(*X)),
    "BNLL": ("", normal(*X)),
    "Clip": ("clip_param { min: -0.5 max: 0.6 }", spread(*X) + 0.003),
    "ELU": ("elu_param { alpha: 0.7 }", spread(*X)),
    "Exp": ("exp_param { base: 2 scale: 0.5 shift: 0.3 }", normal(*X)),
    "Flatten": ("", normal(*X)),
    "Log": ("log_param { base: 3 scale: 2 shift: 0.1 }", positive(*X)),
    "LRN": ("lrn_param { local_size: 3 alpha: 2 beta: 0.75 k: 1.5 }", normal(*X)),
    "Power": ("power_param { power: 2.5 scale: 0.5 shift: 1 }", positive(*X)),
    "PReLU": ("", spread(*X)),
    "ReLU": ("relu_param { negative_slope: 0.2 }", spread(*X)),
    "Reshape": ("reshape_param { shape { dim: 0 dim: -1 } }", normal(*X)),
    "Sigmoid": ("", normal(*X)),
    "Softmax": ("", normal(*X)),
    "Swish": ("swish_param { beta: 1.3 }", normal(*X)),
    "TanH": ("", normal(*X)),
    "Tile": ("tile_param { axis: 2 tiles: 3 }", normal(*X)),
    "Im2col": ("convolution_param { kernel_size: 3 pad: 1 stride: 2 }", normal(*X)),
    "SPP": ("spp_param { pyramid_height: 2 }", spread(*X)),
    "MVN": ("mvn_param { eps: 0 }", normal(*X)),
}
VARIANTS = [
    ("LRN", "lrn_param { local_size: 3 norm_region: WITHIN_CHANNEL alpha: 2 }", normal(*X)),
    ("PReLU", "prelu_param { channel_shared: true }", spread(*X)),
    ("Power", "power_param { power: 2 scale: 0.5 shift: 1 }", normal(*X)),
    ("Power", "power_param { power: 3 }", normal(*X) + 5),
    ("MVN", "mvn_param { across_channels: true normalize_variance: false }", normal(*X)),
    ("Softmax", "softmax_param { axis: 3 }", normal(*X)),
    ("Pooling", "pooling_param { pool: MAX kernel_size: 3 stride: 2 pad: 1 }", spread(*X)),
    ("Pooling", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }", normal(*X)),
    ("Pooling", "pooling_param { pool: AVE global_pooling: true }", normal(*X)),
    ("Convolution", "convolution_param { num_output: 4 kernel_size: 3 pad: 1 stride: 2 }", normal(2, 2, 5, 4)),
    ("Convolution", "convolution_param { num_output: 4 kernel_size: 2 dilation: 2 group: 2 }", normal(2, 2, 5, 4)),
    ("Convolution", "convolution_param { num_output: 2 kernel_size: 1 }", normal(2, 3, 2, 2)),
    ("Convolution", "convolution_param { num_output: 2 kernel_size: 2 axis: 1 }", normal(2, 2, 3, 3, 3)),
    ("Deconvolution", "convolution_param { num_output: 2 kernel_size: 3 stride: 2 pad: 1 }", normal(2, 2, 3, 3)),
    ("InnerProduct", "inner_product_param { num_output: 3 }", normal(4, 2, 3)),
    ("InnerProduct", "inner_product_param { num_output: 3 transpose: true axis: 2 bias_term: false }", normal(2, 2, 3)),
    ("Scale", "scale_param { axis: 1 bias_term: true }", normal(*X)),
    ("Bias", "bias_param { axis: 1 num_axes: 2 }", normal(*X)),
    ("Reduction", "reduction_param { operation: MEAN axis: 1 coeff: 2 }", normal(*X)),
    ("Reduction", "reduction_param { operation: SUMSQ axis: 2 }", normal(*X)),
    ("Reduction", "reduction_param { operation: ASUM }", spread(*X)),
    ("BatchNorm", "batch_norm_param { use_global_stats: false }", normal(4, 3, 2)),
]
SEVERAL = [
    ("Eltwise", "eltwise_param { operation: SUM coeff: 2 coeff: -0.5 }", [normal(*X), normal(*X, seed=1)], None),
    ("Eltwise", "eltwise_param { operation: PROD }", [normal(*X), normal(*X, seed=1), normal(*X, seed=2)], None),
    ("Eltwise", "eltwise_param { operation: MAX }", [spread(*X), spread(*X, seed=1) + 0.01], None),
    ("Concat", "concat_param { axis: 2 }", [normal(*X), normal(2, 3, 1, 5)], None),
    ("Crop", "crop_param { axis: 2 offset: 1 }", [normal(*X), normal(2, 3, 2, 3)], [True, False]),
    ("Scale", "", [normal(*X), normal(3, seed=1)], None),
    ("Bias", "bias_param { axis: 2 }", [normal(*X), normal(4, seed=1)], None),
    ("BatchReindex", "", [normal(*X), np.array([1.0, 0, 1])], [True, False]),
    ("Filter", "", [normal(*X), np.array([1.0, 0])], [True, False]),
    ("EuclideanLoss", "", [normal(3, 4), normal(3, 4, seed=1)], None),
    ("HingeLoss", "", [spread(5, 4), labels(5, 4)], [True, False]),
    ("HingeLoss", "hinge_loss_param { norm: L2 }", [spread(5, 4), labels(5, 4)], [True, False]),
    ("MultinomialLogisticLoss", "", [positive(5, 4) / 4, labels(5, 4)], [True, False]),
    ("SoftmaxWithLoss", "loss_weight: 2", [normal(5, 4), labels(5, 4)], [True, False]),
    ("SoftmaxWithLoss", "loss_param { ignore_label: 1 }", [normal(5, 4), labels(5, 4)], [True, False]),
    ("SigmoidCrossEntropyLoss", "", [normal(5, 4), rng.random((5, 4))], [True, False]),
    ("InfogainLoss", "", [normal(5, 4), labels(5, 4), positive(1, 1, 4, 4)], [True, False, False]),
    ("ContrastiveLoss", "contrastive_loss_param { margin: 6 legacy_version: true }",
     [normal(4, 3), normal(4, 3, seed=1), labels(4, 2)], [True, True, False]),
    ("LSTMUnit", "", [normal(1, 3, 2), normal(1, 3, 8, seed=1), np.array([[1.0, 0, 1]])], [True, True, False]),
    ("LSTM", "recurrent_param { num_output: 2 }", [normal(3, 2, 3), np.array([[0.0, 0], [1, 1], [1, 0]])],
     [True, False]),
    ("RNN", "recurrent_param { num_output: 2 }", [normal(3, 2, 3), np.array([[0.0, 0], [1, 1], [1, 0]])],
     [True, False]),
]  # fmt: skip
SEVERAL_TOPS = [
    ("Slice", 'top: "a" top: "b" slice_param { axis: 2 slice_point: 1 }', [normal(*X)]),
    ("Split", 'top: "a" top: "b" top: "c"', [normal(*X)]),
]
# No gradient by nature; those of data layers, Input, Silence and Python have nothing to check.
WITHOUT = {
    "Accuracy", "ArgMax", "Data", "DummyData", "HDF5Data", "HDF5Output", "ImageData", "Input", "MemoryData", "Python",
    "Silence", "Threshold", "WindowData",
}  # fmt: skip


@pytest.mark.parametrize("name", UNARY)
def test_one_bottom(name):
    text, bottom = UNARY[name]
    check_gradient(f'type: "{name}" top: "y" {text}', [bottom])


@pytest.mark.parametrize(("name", "text", "bottom"), VARIANTS, ids=[f"{n}-{i}" for i, (n, _, _) in enumerate(VARIANTS)])
def test_variants(name, text, bottom):
    # BatchNorm's statistics are parameters that no gradient reaches.
    check_gradient(f'type: "{name}" top: "y" {text}', [bottom], parameters=name != "BatchNorm")


@pytest.mark.parametrize(
    ("name", "text", "bottoms", "wanted"), SEVERAL, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(SEVERAL)]
)
def test_several_bottoms(name, text, bottoms, wanted):
    tops = "" if name.endswith("Loss") else 'top: "y"' if name != "LSTMUnit" else 'top: "c" top: "h"'
    check_gradient(f'type: "{name}" {tops} {text}', bottoms, wanted)


def test_contrastive_loss_divides_by_the_distance_plus_a_little():
    bottoms = [normal(4, 3), normal(4, 3, seed=1), labels(4, 2)]
    text = 'type: "ContrastiveLoss" contrastive_loss_param { margin: 6 }'
    check_gradient(text, bottoms, [True, True, False], tolerance=1e-3)


@pytest.mark.parametrize(("name", "text", "bottoms"), SEVERAL_TOPS)
def test_several_tops(name, text, bottoms):
    check_gradient(f'type: "{name}" {text}', bottoms)


def test_embed():
    text = 'type: "Embed" top: "y" embed_param { input_dim: 5 num_output: 3 }'
    check_gradient(text, [np.array([[0.0, 4], [4, 1]])], [False])


def test_dropout():
    def seed(layer):
        context.current().set_random_seed(5)

    check_gradient('type: "Dropout" top: "y" dropout_param { dropout_ratio: 0.4 }', [normal(*X)], before=seed)


def test_parameter():
    check_gradient('type: "Parameter" top: "y" parameter_param { shape { dim: 2 dim: 3 } }', [])


def test_no_differentiable_layer_is_missing():
    checked = {*UNARY, *(v[0] for v in VARIANTS), *(s[0] for s in SEVERAL), *(s[0] for s in SEVERAL_TOPS)}
    checked |= {"Embed", "Dropout", "Parameter"}
    known = {name for name in layer_types() if not name.startswith("Test")}
    assert known - checked - WITHOUT == set()
