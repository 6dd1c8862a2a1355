"""Detector: a net that classifies windows of images, as in R-CNN."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from refcaffe.pycaffe.classifier import ImageNet, StrPath
from refcaffe.pycaffe.io import load_image, resize_image

Window = Sequence[int]  # ymin, xmin, ymax, xmax


class Detector(ImageNet):
    """``Detector(model, weights).detect_windows([(file, [window, ...]), ...])``.

    With ``context_pad`` a border of so many pixels of the input is what lies around the window; beyond the image's
    edge it is the mean. The other arguments are the transformer's.
    """

    def __init__(
        self,
        model_file: StrPath,
        pretrained_file: StrPath,
        mean: np.ndarray | None = None,
        input_scale: float | None = None,
        raw_scale: float | None = None,
        channel_swap: Sequence[int] | None = None,
        context_pad: int | None = None,
    ) -> None:
        super().__init__(model_file, pretrained_file, mean, input_scale, raw_scale, channel_swap)
        self.configure_crop(context_pad)

    def detect_windows(self, images_windows: Iterable[tuple[StrPath, Iterable[Window]]]) -> list[dict[str, Any]]:
        """For each window of each image file a dict of ``window``, ``prediction`` (the output's row), ``filename``."""
        found: list[dict[str, Any]] = []
        crops = []
        for filename, windows in images_windows:
            image = load_image(filename)
            for window in windows:
                found.append({"window": window, "prediction": None, "filename": filename})
                crops.append(self.crop(image, window))
        if crops:
            for entry, prediction in zip(found, self.outputs_of(crops), strict=True):
                entry["prediction"] = prediction
        return found

    def detect_selective_search(self, image_fnames: Iterable[StrPath]) -> list[dict[str, Any]]:
        """``detect_windows`` of windows that the package ``selective_search_ijcv_with_python`` proposes."""
        import selective_search_ijcv_with_python as selective_search  # type: ignore[import-not-found]

        names = [os.path.abspath(name) for name in image_fnames]
        windows = selective_search.get_windows(names, cmd="selective_search_rcnn")
        return self.detect_windows(zip(names, windows, strict=True))

    def crop(self, im: np.ndarray, window: Window) -> np.ndarray:
        """A window of an image (height, width, channels); with context it has the input's size."""
        y0, x0, y1, x1 = (int(edge) for edge in window)
        if not self.context_pad:
            return im[y0:y1, x0:x1]
        size = int(self.crop_dims[1])  # taken to be square
        # The window and what is around it, so large that the window itself fills all but the border.
        scale = size / (size - self.context_pad * 2.0)
        half = np.array([y1 - y0 + 1, x1 - x0 + 1]) / 2.0
        center = np.array([y0, x0]) + half
        low, high = np.round(center - scale * half), np.round(center + scale * half)
        stretch = size / (high - low + 1)
        before = np.round(np.maximum(0, -low) * stretch).astype(int)
        low, high = (np.clip(edge, 0, im.shape[:2]).astype(int) for edge in (low, high))
        if (high <= low).any():
            raise ValueError(f"window {list(window)} lies outside of an image of {im.shape[0]} x {im.shape[1]}")
        height, width = np.minimum(np.round((high - low + 1) * stretch).astype(int), size - before)
        context = resize_image(im[low[0] : high[0], low[1] : high[1]], (height, width))
        crop = np.ones(self.crop_dims, np.float32) * self.crop_mean
        crop[before[0] : before[0] + height, before[1] : before[1] + width] = context
        return np.asarray(crop)

    def configure_crop(self, context_pad: int | None) -> None:
        """Set the border's width, and ``crop_mean``, which lies beyond the image's edge: the mean as images have it."""
        name = self.inputs[0]
        back = np.argsort(self.transformer.transpose[name])
        self.crop_dims = np.array(self.blobs[name].shape[1:])[back]
        self.context_pad = context_pad
        mean = self.transformer.mean.get(name)
        if mean is None or not context_pad:
            self.crop_mean = np.zeros(self.crop_dims, np.float32)
            return
        self.crop_mean = mean.transpose(back).astype(np.float64)
        if name in self.transformer.channel_swap:
            self.crop_mean = self.crop_mean[:, :, np.argsort(self.transformer.channel_swap[name])]
        if name in self.transformer.raw_scale:
            self.crop_mean = self.crop_mean / self.transformer.raw_scale[name]
