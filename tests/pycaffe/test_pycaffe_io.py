"""Messages, databases, image files, and the transformer."""

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from refcaffe import CheckError, io
from refcaffe.proto import caffe_pb2

shapes = hnp.array_shapes(min_dims=3, max_dims=3, max_side=4)
floats = st.floats(-1e6, 1e6, width=32)

# --- messages


@given(hnp.arrays(np.float32, hnp.array_shapes(min_dims=1, max_dims=5, max_side=4), elements=floats))
def test_blobs(array):
    message = io.array_to_blobproto(array, diff=-array)
    assert (io.blobproto_to_array(message) == array).all()
    assert (io.blobproto_to_array(message, return_diff=True) == -array).all()
    assert io.blobproto_to_array(message).shape == array.shape
    back = io.blobprotovector_str_to_arraylist(io.arraylist_to_blobprotovector_str([array, array[0]]))
    assert (back[0] == array).all()
    assert back[1].shape == array.shape[1:]


def test_blobs_of_the_old_shape_and_of_none():
    message = caffe_pb2.BlobProto(data=range(6), channels=3, height=1, width=2, num=1)
    assert io.blobproto_to_array(message).shape == (1, 3, 1, 2)
    assert io.blobproto_to_array(caffe_pb2.BlobProto(data=[4])) == 4
    with pytest.raises(ValueError, match="reshape"):
        io.blobproto_to_array(caffe_pb2.BlobProto(data=range(6)))


@given(st.one_of(hnp.arrays(np.uint8, shapes), hnp.arrays(np.float64, shapes, elements=floats)), st.integers(0, 9))
def test_datums(array, label):
    datum = io.array_to_datum(array, label)
    assert datum.label == label
    assert bool(datum.data) == (array.dtype == np.uint8)
    back = io.datum_to_array(datum)
    assert back.dtype == array.dtype
    assert (back == array).all()
    back += 1  # it is the caller's
    assert not io.array_to_datum(array).HasField("label")
    with pytest.raises(ValueError, match="Incorrect array shape"):
        io.array_to_datum(array[0])


def test_databases(tmp_path):
    arrays = [np.full((1, 2, 2), i, np.uint8) for i in range(3)]
    io.write_lmdb(tmp_path / "db", (io.array_to_datum(array, i) for i, array in enumerate(arrays)))
    records = list(io.read_lmdb(tmp_path / "db"))
    assert [(key, datum.label) for key, datum in records] == [(b"00000000", 0), (b"00000001", 1), (b"00000002", 2)]
    assert all((io.datum_to_array(datum) == array).all() for (_, datum), array in zip(records, arrays, strict=True))
    with pytest.raises(CheckError):
        io.write_lmdb(tmp_path / "db", [])


# --- images


def save(tmp_path, pixels, name="i.png"):
    assert cv2.imwrite(str(tmp_path / name), pixels)
    return tmp_path / name


def test_load_image(tmp_path):
    rgb = np.random.default_rng(0).integers(0, 256, (4, 5, 3)).astype(np.uint8)
    image = io.load_image(save(tmp_path, rgb[:, :, ::-1]))
    assert (image.dtype, image.shape) == (np.float32, (4, 5, 3))
    assert (image == (rgb / 255).astype(np.float32)).all()
    gray = io.load_image(tmp_path / "i.png", color=False)
    assert gray.shape == (4, 5, 1)
    np.testing.assert_allclose(gray[:, :, 0], rgb @ [0.2125, 0.7154, 0.0721] / 255, rtol=1e-6)
    transparent = np.concatenate([rgb[:, :, ::-1], rgb[:, :, :1]], axis=2)
    assert (io.load_image(save(tmp_path, transparent)) == image).all()
    assert (io.load_image(save(tmp_path, rgb[:, :, ::-1].astype(np.uint16) * 257)) == image).all()
    one = io.load_image(save(tmp_path, rgb[:, :, 0]))
    assert one.shape == (4, 5, 3)
    assert (one == image[:, :, :1]).all()
    assert io.load_image(tmp_path / "i.png", color=False).shape == (4, 5, 1)
    real = np.random.default_rng(0).random((3, 2, 3)).astype(np.float32)
    assert (io.load_image(save(tmp_path, real[:, :, ::-1], "i.tiff")) == real).all()


def test_files_that_hold_no_image(tmp_path):
    with pytest.raises(FileNotFoundError):
        io.load_image(tmp_path / "gone.png")
    for contents in (b"", b"\x89PNG\r\n\x1a\n", b"text"):
        (tmp_path / "i.png").write_bytes(contents)
        with pytest.raises(ValueError, match="not an image"):
            io.load_image(tmp_path / "i.png")


@given(hnp.arrays(np.float32, shapes, elements=floats), st.integers(1, 9), st.integers(1, 9), st.sampled_from([0, 1]))
@settings(deadline=None)
def test_resize_image_keeps_to_the_range(image, height, width, order):
    resized = io.resize_image(image, (height, width), order)
    assert (resized.dtype, resized.shape) == (np.float32, (height, width, image.shape[2]))
    margin = 1e-6 * (abs(image).max() + 1)
    assert image.min() - margin <= resized.min() <= resized.max() <= image.max() + margin
    assert (io.resize_image(image, image.shape[:2], order) == image).all()
    constant = io.resize_image(np.full_like(image, 3), (height, width), order)
    np.testing.assert_allclose(constant, 3, rtol=1e-6)


def test_resize_image_by_hand():
    row = np.array([[[0.0], [1.0], [4.0], [2.0]]])
    assert io.resize_image(row, (1, 2)).ravel().tolist() == [0.5, 3.0]
    assert io.resize_image(row, (1, 2), 0).ravel().tolist() == [1, 2]
    # Beyond the border is the lowest value.
    assert io.resize_image(row, (1, 8)).ravel()[[0, 1, -2, -1]].tolist() == [0, 0.25, 2.5, 1.5]
    # Two channels: the first and last pixels stay where they are.
    pair = np.repeat(row, 2, axis=2)
    assert io.resize_image(pair, (1, 7))[0, :, 1].tolist() == [0, 0.5, 1, 2.5, 4, 3, 2]
    with pytest.raises(ValueError, match="interp_order"):
        io.resize_image(row, (1, 2), 3)


@given(st.integers(1, 5), st.integers(1, 5), st.integers(0, 4), st.integers(0, 4), st.integers(1, 2))
def test_oversample(height, width, taller, wider, count):
    images = np.random.default_rng(0).random((count, height + taller, width + wider, 2)).astype(np.float32)
    crops = io.oversample(images, (height, width))
    assert crops.shape == (10 * count, height, width, 2)
    image, mine = images[-1], crops[-10:]
    assert (mine[5:] == mine[:5, :, ::-1]).all()
    assert (mine[0] == image[:height, :width]).all()
    assert (mine[3] == image[taller:, wider:]).all()
    top, left = taller // 2, wider // 2
    assert (mine[4] == image[top : top + height, left : left + width]).all()
    with pytest.raises(ValueError, match="crops of"):
        io.oversample(images, (height + taller + 1, width))


# --- the transformer


@given(st.permutations([0, 1, 2]), st.booleans(), st.booleans(), st.integers(0, 2**32 - 1))
@settings(deadline=None)
def test_preprocess_and_back(swap, whole_mean, scaled, seed):
    rng = np.random.default_rng(seed)
    image = rng.random((4, 5, 3))
    before = image.copy()
    transformer = io.Transformer({"data": (2, 3, 4, 5)})
    transformer.set_transpose("data", (2, 0, 1))
    transformer.set_channel_swap("data", swap)
    transformer.set_raw_scale("data", 255)
    mean = rng.random((3, 4, 5) if whole_mean else 3) * 100
    transformer.set_mean("data", mean)
    if scaled:
        transformer.set_input_scale("data", 0.5)
    ready = transformer.preprocess("data", image)
    assert (ready.dtype, ready.shape) == (np.float32, (3, 4, 5))
    assert (image == before).all()
    mean = mean if whole_mean else mean[:, None, None]
    wanted = (image.transpose(2, 0, 1)[list(swap)] * 255 - mean) * (0.5 if scaled else 1)
    np.testing.assert_allclose(ready, wanted, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(transformer.deprocess("data", ready[None]), image, atol=1e-5)
    single = image.astype(np.float32)
    transformer.preprocess("data", single)
    assert (single == before.astype(np.float32)).all()


def test_images_and_means_of_other_sizes():
    transformer = io.Transformer({"data": (1, 3, 4, 4)})
    transformer.set_transpose("data", (2, 0, 1))
    image = np.random.default_rng(0).random((8, 8, 3)).astype(np.float32)
    assert (transformer.preprocess("data", image) == io.resize_image(image, (4, 4)).transpose(2, 0, 1)).all()
    mean = image.transpose(2, 0, 1) * 200 + 7
    transformer.set_mean("data", mean)
    wanted = io.resize_image(mean.transpose(1, 2, 0), (4, 4)).transpose(2, 0, 1)
    np.testing.assert_allclose(transformer.mean["data"], wanted, rtol=1e-5)
    transformer.set_mean("data", np.full((3, 9, 9), 5.0))
    assert (transformer.mean["data"] == 5).all()


def test_settings_that_do_not_fit():
    transformer = io.Transformer({"data": (1, 3, 4, 4)})
    for call, message in [
        (lambda: transformer.preprocess("image", np.zeros((4, 4, 3))), "image is not one of the net inputs"),
        (
            lambda: transformer.set_transpose("data", (1, 0)),
            "Transpose order needs to have the same number of dimensions",
        ),
        (
            lambda: transformer.set_channel_swap("data", (1, 0)),
            "Channel swap needs to have the same number of dimensions",
        ),
        (lambda: transformer.set_mean("data", np.zeros(2)), "Mean channels incompatible with input"),
        (lambda: transformer.set_mean("data", np.zeros((1, 3, 4, 4))), "Mean shape invalid"),
    ]:
        with pytest.raises(ValueError, match=message):
            call()
