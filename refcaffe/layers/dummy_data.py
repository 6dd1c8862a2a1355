"""DummyData: tops from fillers."""

from __future__ import annotations

from collections.abc import Sequence

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker
from refcaffe.fillers import get_filler
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.proto import caffe_pb2
from refcaffe.side import Side

_check = Checker("dummy_data_layer.cpp")

_OLD_FIELDS = ("num", "channels", "height", "width")


@register("DummyData")
class DummyData(Layer):
    """Constant tops are filled once, at set-up; the others in every forward pass, and are 0 until then."""

    exact_bottoms = 0
    min_tops = 1
    forward_on_gpu = False

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        given = self.param.dummy_data_param.data_filler
        text = (
            "Number of data fillers must be 0, 1 or equal to the number of tops: "
            f"{len(top)}; you specified {len(given)} data fillers."
        )
        expression = "num_data_filler == 0 || num_data_filler == 1 || num_data_filler == num_top"
        _check(len(given) in (0, 1, len(top)), expression, text)
        self._check_shapes(len(top))
        params = list(given) or [caffe_pb2.FillerParameter()]  # which is constant 0
        self.fillers = [(param, get_filler(param)) for param in params]
        for i, blob in enumerate(top):
            self._shape(i, blob)
        self._fill(top, constant=True)

    def _check_shapes(self, tops: int) -> None:
        param = self.param.dummy_data_param
        self.old = any(len(getattr(param, field)) for field in _OLD_FIELDS)
        if self.old:
            text = "Both shape and legacy fields were specified"
            _check.eq(0, len(param.shape), "0 == param.shape_size()", text)
        for field in _OLD_FIELDS if self.old else ("shape",):
            count = len(getattr(param, field))
            text = f"Must specify '{field}' once, or once per top blob ({tops}); specified {count}."
            _check(count in (1, tops), f"param.{field}_size() == 1 || param.{field}_size() == num_top", text)

    def _shape(self, i: int, blob: Blob) -> None:
        param = self.param.dummy_data_param
        if self.old:
            values = (getattr(param, field) for field in _OLD_FIELDS)
            blob.reshape([to_int(value[0 if len(value) == 1 else i]) for value in values])
        else:
            blob.reshape_proto(param.shape[0 if len(param.shape) == 1 else i])

    def _fill(self, top: Blobs, constant: bool) -> None:
        for i, blob in enumerate(top):
            param, fill = self.fillers[i if len(self.fillers) > 1 else 0]
            if (param.type == "constant") == constant:
                fill(blob, param, context.current().stream)

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """The shapes are fixed."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        self._fill(top, constant=False)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """There is nothing below."""
