"""DataTransformer beside a reference that goes pixel by pixel."""

import cv2
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.data import parse, serialize
from refcaffe.data.transformer import DataTransformer
from refcaffe.proto import caffe_pb2, io
from refcaffe.rng import Stream

SEED = 1701


def expected(param, train, dtype, images, mean, words):
    """The images, (C, H, W), one after the other, with random words from ``words``."""
    real, results = np.dtype(dtype).type, []
    for image in images:
        channels, height, width = image.shape
        mirror = param.mirror and words.raw() % 2
        crop, h_off, w_off = param.crop_size, 0, 0
        if crop:
            spare = height - crop, width - crop
            h_off, w_off = (words.raw() % (n + 1) if train else n // 2 for n in spare)
        out = np.empty((channels, crop or height, crop or width), dtype)
        for c, h, w in np.ndindex(out.shape):
            value = real(image[c, h_off + h, w_off + w])
            if mean is not None:
                value = value - real(mean[c, h_off + h, w_off + w])
            elif len(param.mean_value):
                value = value - real(param.mean_value[c % len(param.mean_value)])
            out[c, h, -1 - w if mirror else w] = value * real(param.scale)
        results.append(out)
    return results


@st.composite
def setups(draw):
    """A parameter, a phase, a type, one to three images of a shape, and the mean image if there is one."""
    channels, height, width = (draw(st.integers(1, n)) for n in (4, 7, 7))
    param = caffe_pb2.TransformationParameter(mirror=draw(st.booleans()))
    if draw(st.booleans()):
        param.crop_size = draw(st.integers(1, min(height, width)))
    if draw(st.booleans()):
        param.scale = draw(st.sampled_from([0.00390625, 0.017, 0.0, -3.0]))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    mean, kind = None, draw(st.sampled_from(["none", "file", "one", "each"]))
    if kind == "file":
        mean = rng.uniform(0, 255, (channels, height, width)).astype(np.float32)
    elif kind != "none":
        param.mean_value.extend(rng.uniform(0, 255, channels if kind == "each" else 1))
    images = rng.integers(0, 256, (draw(st.integers(1, 3)), channels, height, width))
    images = images.astype(np.uint8) if draw(st.booleans()) else (images * 1.7).astype(np.float32)
    return param, draw(st.booleans()), draw(st.sampled_from(["float32", "float64"])), images, mean


def transformer(param, train, dtype="float32", mean=None, folder=None):
    if mean is not None:
        proto = caffe_pb2.BlobProto(data=mean.reshape(-1).tolist())
        proto.shape.dim.extend((1, *mean.shape))
        param.mean_file = str(folder / "mean.binaryproto")
        io.write_binary(proto, param.mean_file)
    made = DataTransformer(param, caffe_pb2.TRAIN if train else caffe_pb2.TEST, dtype)
    context.current().set_random_seed(SEED)
    made.init_rand()
    return made


def own_words():
    return Stream(Stream(SEED).raw())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("mean")


def equal(got, wanted):
    return got.dtype == wanted.dtype and got.tobytes() == wanted.tobytes()


@given(setups())
def test_datums(folder, setup):
    param, train, dtype, images, mean = setup
    wanted = expected(param, train, dtype, images, mean, own_words())
    made = transformer(param, train, dtype, mean, folder)
    datums = [parse(serialize(image)) for image in images]
    shape = made.infer_datums(datums)
    assert shape == (len(images), *wanted[0].shape)
    top = Blob(shape, dtype)
    made.transform_datums(datums, top)
    assert equal(top.cpu_data(), np.stack(wanted))


@given(setups(), st.randoms(use_true_random=False))
def test_words_drawn_first_and_work_done_in_any_order(folder, setup, random):
    param, train, dtype, images, mean = setup
    wanted = expected(param, train, dtype, images, mean, own_words())
    made = transformer(param, train, dtype, mean, folder)
    out = np.empty((len(images), *wanted[0].shape), dtype)
    words = made.draw(len(images))
    jobs = [(parse(serialize(image)), out[i], words[i]) for i, image in enumerate(images)]
    random.shuffle(jobs)
    for job in jobs:
        made.transform_item(*job)
    assert equal(out, np.stack(wanted))


@given(setups())
def test_mats_and_encoded_datums(folder, setup):
    param, train, dtype, images, mean = setup
    assume(images.shape[1] != 2)  # no image file has two channels
    images = images.astype(np.uint8)
    wanted = np.stack(expected(param, train, dtype, images, mean, own_words()))
    mats = [np.ascontiguousarray(image.transpose(1, 2, 0)) for image in images]
    if images.shape[1] == 1:
        mats = [mat[..., 0] for mat in mats]
    made = transformer(param, train, dtype, mean, folder)
    top = Blob(made.infer_mats(mats), dtype)
    made.transform_mats(mats, top)
    assert equal(top.cpu_data(), wanted)
    files = [cv2.imencode(".png", mat)[1].tobytes() for mat in mats]
    datums = [parse(caffe_pb2.Datum(data=file, encoded=True).SerializeToString()) for file in files]
    made = transformer(param, train, dtype, mean, folder)
    top = Blob(made.infer_datums(datums), dtype)
    made.transform_datums(datums, top)
    assert equal(top.cpu_data(), wanted)


@given(setups())
def test_blob(folder, setup):
    param, train, dtype, images, mean = setup
    made = transformer(param, train, dtype, mean, folder)
    source, top = Blob(images.shape, dtype), Blob(dtype=dtype)
    source.mutable_cpu_data()[...] = images
    made.transform_blob(source, top)
    # One mirror and one place for all; BLAS scales, and by 0 it clears.
    wanted = np.stack([expected(param, train, dtype, [image], mean, own_words())[0] for image in images])
    assert equal(top.cpu_data(), wanted if param.scale else np.zeros_like(wanted))
    means = expected(caffe_pb2.TransformationParameter(mean_value=param.mean_value), 0, dtype, images, mean, None)
    assert equal(source.cpu_data(), np.stack(means))


def test_a_blob_scaled_by_0_is_cleared():
    made = transformer(caffe_pb2.TransformationParameter(scale=0), False)
    source, top = Blob((1, 1, 1, 3)), Blob()
    source.mutable_cpu_data()[...] = [-1, np.nan, np.inf]
    made.transform_blob(source, top)
    assert not top.cpu_data().view(np.uint32).any()


def test_one_mean_value_is_spread_for_good():
    made = transformer(caffe_pb2.TransformationParameter(mean_value=[5]), False)
    for channels, fits in [(1, True), (3, True), (1, False), (3, True)]:
        datum, top = parse(serialize(np.zeros((channels, 1, 1), np.uint8))), Blob((1, channels, 1, 1))
        if fits:
            made.transform_datum(datum, top)
            assert top.cpu_data().tolist() == np.full((1, channels, 1, 1), -5.0).tolist()
        else:
            with pytest.raises(CheckError, match="Specify either 1 mean_value or as many as channels: 1"):
                made.transform_datum(datum, top)


def test_words_of_no_use_are_not_drawn():
    for text, train, words in [("", 1, 0), ("crop_size: 1", 0, 0), ("crop_size: 1", 1, 2), ("mirror: true", 0, 1)]:
        param = io.parse_text(text, caffe_pb2.TransformationParameter, "param")
        made = transformer(param, train)
        assert [len(drawn) for drawn in made.draw(1)] == [words]
        assert made.needs_rand == (words > 0)
        assert context.current().stream.draws == (words > 0)


def test_transforming_without_init_rand():
    made = DataTransformer(caffe_pb2.TransformationParameter(mirror=True), caffe_pb2.TEST)
    with pytest.raises(CheckError, match="Check failed: rng_"):
        made.transform_mat(np.zeros((1, 1), np.uint8), Blob((1, 1, 1, 1)))


def test_no_image_is_logged_and_empty(caplog):
    made = transformer(caffe_pb2.TransformationParameter(), False)
    for file in (b"", b"no image", cv2.imencode(".png", np.zeros((9, 9), np.uint8))[1].tobytes()[:30]):
        caplog.clear()
        datum = parse(caffe_pb2.Datum(data=file, encoded=True).SerializeToString())
        assert made.infer_datum(datum) == (1, 1, 0, 0)
        assert caplog.messages == ["Could not decode datum "]
        with pytest.raises(CheckError, match=r"height <= img_height \(2 vs. 0\)"):
            made.transform_datum(datum, Blob((1, 1, 2, 2)))
