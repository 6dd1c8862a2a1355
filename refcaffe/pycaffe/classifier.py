"""Classifier: a net that takes images as they are and gives the probabilities of classes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.pycaffe.io import Transformer, oversample, resize_image

StrPath = str | os.PathLike[str]


class ImageNet(Net):
    """A net in phase TEST whose first input are images (height, width, channels); ``transformer`` brings them there."""

    def __init__(
        self,
        model_file: StrPath,
        pretrained_file: StrPath,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model_file, caffe_pb2.TEST, weights=pretrained_file)
        name = self.inputs[0]
        self.transformer = Transformer({name: self.blobs[name].shape})
        self.transformer.set_transpose(name, (2, 0, 1))
        if mean is not None:
            self.transformer.set_mean(name, mean)
        if input_scale is not None:
            self.transformer.set_input_scale(name, input_scale)
        if raw_scale is not None:
            self.transformer.set_raw_scale(name, raw_scale)
        if channel_swap is not None:
            self.transformer.set_channel_swap(name, channel_swap)

    def outputs_of(self, images: Sequence[np.ndarray] | np.ndarray) -> Any:
        """The net's first output for images of any size, one row per image."""
        name = self.inputs[0]
        rows = np.empty((len(images), *self.blobs[name].shape[1:]), np.float32)
        for row, image in zip(rows, images, strict=True):
            row[...] = self.transformer.preprocess(name, image)
        arrays: dict[str, Any] = {name: rows}
        return self.forward_all(**arrays)[self.outputs[0]]


class Classifier(ImageNet):
    """``Classifier(model, weights).predict([image, ...])``.

    Images are brought to ``image_dims`` (by default the input's size), then crops of the input's size are taken.
    ``mean``, ``input_scale``, ``raw_scale`` and ``channel_swap`` are the transformer's.
    """

    def __init__(
        self,
        model_file: StrPath,
        pretrained_file: StrPath,
        image_dims: Sequence[int] | None = None,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
    ) -> None:
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap)
        self.crop_dims = np.array(self.blobs[self.inputs[0]].shape[2:])
        self.image_dims: Any = self.crop_dims if image_dims is None or not len(image_dims) else image_dims

    def predict(self, inputs: Sequence[np.ndarray], oversample: bool = True) -> np.ndarray:
        """Probabilities (n, classes) of n images (height, width, channels).

        With ``oversample`` the means over ten crops: corners, center, and these mirrored; else the center alone.
        """
        images = np.stack([resize_image(image, self.image_dims) for image in inputs])
        if not oversample:
            return np.asarray(self.outputs_of(self._centers(images)))
        outputs = self.outputs_of(_ten_crops(images, self.crop_dims))
        return np.asarray(outputs.reshape(len(outputs) // 10, 10, -1).mean(1))

    def _centers(self, images: np.ndarray) -> Any:
        half, center = self.crop_dims / 2.0, np.array(self.image_dims) / 2.0
        (top, left), (bottom, right) = (center - half).astype(int), (center + half).astype(int)
        return images[:, top:bottom, left:right]


_ten_crops = oversample  # ``predict`` has an argument of that name
