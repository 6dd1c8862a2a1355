"""Nets that take images."""

import cv2
import numpy as np
import pytest

import refcaffe
from refcaffe import io

# Every class gives the mean of one channel: what goes in can be seen in what comes out.
NET = """
input: "data" input_shape { dim: 4 dim: 3 dim: 6 dim: 6 }
layer { name: "pool" type: "Pooling" bottom: "data" top: "pool" pooling_param { pool: AVE global_pooling: true } }
layer { name: "scale" type: "InnerProduct" bottom: "pool" top: "prob"
  inner_product_param { num_output: 3 bias_term: false } }
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "net.prototxt").write_text(NET)
    net = refcaffe.Net(tmp_path / "net.prototxt", refcaffe.TEST)
    net.params["scale"][0].data[...] = np.eye(3)
    net.save(tmp_path / "w.caffemodel")
    return str(tmp_path / "net.prototxt"), str(tmp_path / "w.caffemodel")


def images(*sizes):
    rng = np.random.default_rng(1)
    return [rng.random((height, width, 3)).astype(np.float32) for height, width in sizes]


def test_the_center_alone(files):
    classifier = refcaffe.Classifier(*files, image_dims=(8, 10), channel_swap=(2, 1, 0), raw_scale=255)
    given = images((8, 10), (8, 10), (16, 30), (8, 10), (8, 10))
    found = classifier.predict(given, oversample=False)
    for row, image in zip(found, given, strict=True):
        center = io.resize_image(image, (8, 10))[1:7, 2:8, ::-1]
        np.testing.assert_allclose(row, center.mean((0, 1)) * 255, rtol=1e-4)


def test_ten_crops(files):
    classifier = refcaffe.Classifier(*files, image_dims=(8, 10), mean=np.array([0.1, 0.2, 0.3]))
    given = images((8, 10), (20, 20))
    found = classifier.predict(given)
    assert found.shape == (2, 3)
    crops = io.oversample(given[:1], (6, 6))
    np.testing.assert_allclose(found[0], crops.mean((0, 1, 2)) - [0.1, 0.2, 0.3], rtol=1e-3, atol=1e-5)


def test_by_default_the_whole_image_is_brought_to_the_inputs_size(files):
    classifier = refcaffe.Classifier(*files)
    assert list(classifier.image_dims) == [6, 6]
    [image] = images((12, 18))
    found = classifier.predict([image], oversample=False)
    np.testing.assert_allclose(found[0], io.resize_image(image, (6, 6)).mean((0, 1)), rtol=1e-5)


@pytest.fixture
def image_file(tmp_path):
    pixels = np.random.default_rng(2).integers(0, 256, (30, 40, 3)).astype(np.uint8)
    cv2.imwrite(str(tmp_path / "i.png"), pixels)
    return str(tmp_path / "i.png")


def test_windows(files, image_file):
    detector = refcaffe.Detector(*files, input_scale=2)
    windows = [[0, 0, 6, 6], np.array([3, 4, 15, 22])]
    found = detector.detect_windows(iter([(image_file, iter(windows)), (image_file, [(24, 34, 30, 40)])]))
    assert [entry["filename"] for entry in found] == [image_file] * 3
    assert found[1]["window"] is windows[1]
    image = io.load_image(image_file)
    np.testing.assert_allclose(found[0]["prediction"], image[:6, :6].mean((0, 1)) * 2, rtol=1e-4)
    np.testing.assert_allclose(found[2]["prediction"], image[24:, 34:].mean((0, 1)) * 2, rtol=1e-4)
    assert detector.detect_windows([]) == []


def test_windows_with_what_is_around_them(files, image_file):
    mean = np.array([0.5, 0.25, 0.125])
    detector = refcaffe.Detector(*files, mean=mean, channel_swap=(2, 1, 0), context_pad=1)
    image = np.ones((30, 40, 3), np.float32)
    inside = detector.crop(image, np.array([10, 10, 20, 20]))
    assert inside.shape == (6, 6, 3)
    assert (inside == 1).all()
    corner = detector.crop(image, np.array([0, 0, 12, 12]))
    assert (corner[2:, 2:] == 1).all()
    np.testing.assert_allclose(corner[0, 0], mean[::-1])
    with pytest.raises(ValueError, match="lies outside"):
        detector.crop(image, [50, 50, 60, 60])
    plain = refcaffe.Detector(*files, context_pad=1)
    assert (plain.crop(image, [0, 0, 12, 12])[0] == 0).all()
