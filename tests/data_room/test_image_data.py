"""ImageData and WindowData beside references that go image by image, and the workers that serve them."""

import math
import os

import cv2
import numpy as np
import pytest
from data_room_running import at_rest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import context, data
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.data import windows
from refcaffe.data.image_list import Line, atoi, read_list
from refcaffe.data.windows import Window, warp
from refcaffe.layers.base import make
from refcaffe.net.net import Net
from refcaffe.proto import caffe_pb2, io
from refcaffe.rng import Stream


def layer(text, phase="TRAIN"):
    made = make(io.parse_text(f'name: "images" phase: {phase} {text}', caffe_pb2.LayerParameter, "layer"))
    tops = [Blob(), Blob()]
    made.set_up([], tops)
    return made, tops


def batches(text, count, phase="TRAIN"):
    made, tops = layer(text, phase)
    found = []
    for _ in range(count):
        made.forward([], tops)
        found.append(tuple(top.cpu_data().copy() for top in tops))
    made.close()
    return found


@pytest.fixture
def images(tmp_path):
    """Nine images of 6 x 8, and their list; the label of image i is i."""
    rng = np.random.default_rng(5)
    pixels = rng.integers(0, 256, (9, 6, 8, 3)).astype(np.uint8)
    for i, image in enumerate(pixels):
        cv2.imwrite(str(tmp_path / f"{i}.png"), image)
    (tmp_path / "list.txt").write_text("".join(f"{i}.png {i}\n" for i in range(9)))
    return pixels


def source(tmp_path, more="", batch_size=4, transform=""):
    return (
        f'type: "ImageData" transform_param {{ {transform} }} image_data_param {{ source: "{tmp_path}/list.txt" '
        f'root_folder: "{tmp_path}/" batch_size: {batch_size} {more} }}'
    )


class TestLists:
    def test_lines(self, tmp_path):
        path = tmp_path / "list"
        path.write_bytes(b"a.png 3\nwith a blank.png -4\r\nno-label\n\n12 \nb.png 7x\nlast 99999999999")
        assert read_list(str(path)) == [
            Line("a.png", 3), Line("with a blank.png", -4), Line("no-label", 0), Line("", 0), Line("12", 0),
            Line("b.png", 7), Line("last", 1215752191),
        ]  # fmt: skip
        assert read_list(str(tmp_path / "missing")) == []

    @pytest.mark.parametrize(
        ("text", "number"),
        [("12", 12), (" \t-7 ", -7), ("+3a", 3), ("", 0), ("x", 0), ("2147483648", -(2**31)), ("9" * 30, -1)],
    )
    def test_atoi(self, text, number):
        assert atoi(text) == number


class TestImageData:
    @pytest.mark.parametrize("shuffle", [False, True])
    @pytest.mark.parametrize("skip", [0, 5])
    def test_order(self, tmp_path, images, shuffle, skip):
        words = Stream(1)
        order = list(range(9))
        shuffler = words.sub_stream() if shuffle else None
        if shuffle:
            shuffler.shuffle(order)
        start = words.raw() % skip if skip else 0
        wanted = order[start:]
        while len(wanted) < 24:
            if shuffle:
                shuffler.shuffle(order)
            wanted += order
        found = batches(source(tmp_path, f"shuffle: {str(shuffle).lower()} rand_skip: {skip}"), 6)
        assert [int(label) for _, labels in found for label in labels] == wanted[:24]
        for pixels, labels in found:
            for image, label in zip(pixels, labels.astype(int), strict=True):
                assert np.array_equal(image, images[label].transpose(2, 0, 1))

    @pytest.mark.parametrize("workers", [1, 2, 5])
    def test_any_number_of_workers_gives_the_same(self, tmp_path, images, workers):
        text = source(tmp_path, "shuffle: true", transform="mirror: true crop_size: 5 mean_value: 3.5 scale: 0.3")
        before = data.num_workers()
        try:
            data.set_num_workers(1)
            alone = batches(text, 7)
            context.current().set_random_seed(1)
            data.set_num_workers(workers)
            together = batches(text, 7)
        finally:
            data.set_num_workers(before)
        for ours, theirs in zip(together, alone, strict=True):
            assert all(a.tobytes() == b.tobytes() for a, b in zip(ours, theirs, strict=True))

    def test_grown_gray_and_resized(self, tmp_path, images):
        ((pixels, _),) = batches(source(tmp_path, "is_color: false new_height: 3 new_width: 16"), 1)
        assert pixels.shape == (4, 1, 3, 16)
        gray = cv2.imread(str(tmp_path / "0.png"), cv2.IMREAD_GRAYSCALE)
        assert np.array_equal(pixels[0, 0], cv2.resize(gray, (16, 3)))

    @pytest.mark.parametrize("what", ["missing", "no image"])
    def test_the_first_bad_file_is_named(self, tmp_path, images, what, caplog):
        for i in (5, 6, 7):
            path = tmp_path / f"{i}.png"
            path.unlink() if what == "missing" else path.write_bytes(b"no image")
        made, tops = layer(source(tmp_path))
        made.forward([], tops)
        assert tops[1].cpu_data().tolist() == [0, 1, 2, 3]
        with pytest.raises(CheckError) as caught:
            made.forward([], tops)
        made.close()
        assert caught.value.message == "Check failed: cv_img.data Could not load 5.png"
        assert f"image 5 of '{tmp_path}/list.txt': {tmp_path}/5.png" in str(caught.value)
        assert "prefetch thread of layer 'images'" in str(caught.value)
        assert f"Could not open or find file {tmp_path}/5.png" in caplog.messages

    def test_a_file_removed_while_it_runs(self, tmp_path, images):
        made, tops = layer(source(tmp_path))
        assert at_rest(made.prefetcher.full, 4)
        for name in os.listdir(tmp_path):
            os.unlink(tmp_path / name)
        for _ in range(4):
            made.forward([], tops)
        with pytest.raises(CheckError, match="Could not load"):
            made.forward([], tops)
        made.close()

    def test_a_net_names_file_and_layer(self, tmp_path, images):
        (tmp_path / "0.png").unlink()
        text = f'layer {{ name: "images" top: "a" top: "b" {source(tmp_path)} }}'
        with pytest.raises(CheckError, match=r"Could not load 0\.png") as caught:
            Net(io.parse_text(text, caffe_pb2.NetParameter, "n"))
        assert "layer 'images' (ImageData) of net '', set-up" in str(caught.value)


def window_file(tmp_path, images, lines):
    text = ""
    for i in range(len(images)):
        text += f"# {i}\n{i}.png\n3 6 8\n{len(lines)}\n" + "\n".join(lines) + "\n"
    (tmp_path / "windows.txt").write_text(text)


def window_source(tmp_path, more="", transform="crop_size: 4"):
    return (
        f'type: "WindowData" transform_param {{ {transform} }} window_data_param {{ batch_size: 4 '
        f'source: "{tmp_path}/windows.txt" root_folder: "{tmp_path}/" fg_fraction: 0.5 {more} }}'
    )


class TestWindowData:
    LINES = ("1 0.9 2 1 5 4", "2 0.7 4 2 7 5", "3 0.4 0 0 3 3", "4 0.1 1 0 4 3")

    def test_samples_and_pixels(self, tmp_path, images):
        window_file(tmp_path, images, self.LINES)
        stream = Stream(1)
        stream.raw()  # the transformer's
        words = stream.sub_stream()
        text = window_source(tmp_path, "scale: 0.5", "crop_size: 4 mirror: true mean_value: 10")
        for pixels, labels in batches(text, 5):
            for i in range(4):
                kind = i >= 2
                number = words.raw() % 18
                mirror = words.raw() % 2
                line = self.LINES[number % 2 if kind else 2 + number % 2].split()
                x, y = int(line[2]), int(line[3])
                assert labels[i] == (int(line[0]) if kind else 0)
                image = images[number // 2].astype(np.float32)[y : y + 4, x : x + 4].transpose(2, 0, 1)
                assert np.array_equal(pixels[i], (image[..., ::-1] if mirror else image) * 0.5 - 5)

    @pytest.mark.parametrize(
        ("lines", "message"),
        [
            (["1 0.9 2 1 9 4", "0 0.1 0 0 3 3"], "not inside of its image"),
            (["1 0.9 2 1 5"], "has '#' where a window's edge should be"),
            (["1 0.9 2 1 5 x"], "has 'x' where a window's edge should be"),
            (["1 0.9 5 4 2 1", "0 0.1 0 0 3 3"], "not inside of its image"),
            (["0 0.9 2 1 5 4"], r"label > 0 \(0 vs. 0\)"),
            (["1 0.9 2 1 5 4"], "bg_windows_.size"),
        ],
    )
    def test_what_does_not_fit(self, tmp_path, images, lines, message):
        window_file(tmp_path, images, lines)
        with pytest.raises(CheckError, match=message):
            batches(window_source(tmp_path), 9)

    @pytest.mark.parametrize("kept", ["cache_images: true", ""])
    def test_kept_in_memory(self, tmp_path, images, kept):
        window_file(tmp_path, images, self.LINES)
        made, tops = layer(window_source(tmp_path, kept))
        assert at_rest(made.prefetcher.full, 4)
        for name in os.listdir(tmp_path):
            os.unlink(tmp_path / name)
        for _ in range(7):
            made.forward([], tops)
        made.close()
        assert bool(tops[0].cpu_data().any()) == bool(kept)

    def test_a_window_of_no_image(self, tmp_path, images):
        window_file(tmp_path, images[:1], self.LINES)
        path = tmp_path / "windows.txt"
        path.write_text(path.read_text().replace("# 0", "# 5"))
        with pytest.raises(CheckError, match="There is no image 5 among 1"):
            batches(window_source(tmp_path), 1)

    @pytest.mark.parametrize("shape", [(1, 8, 8), (3, 3, 3), (3, 4, 9)])
    def test_a_mean_image(self, tmp_path, images, shape):
        window_file(tmp_path, images, self.LINES)
        mean = np.arange(math.prod(shape), dtype=np.float32)
        proto = caffe_pb2.BlobProto(data=mean, num=1, channels=shape[0], height=shape[1], width=shape[2])
        io.write_binary(proto, str(tmp_path / "mean"))
        text = window_source(tmp_path, "", f'crop_size: 4 mean_file: "{tmp_path}/mean"')
        with pytest.raises(CheckError, match="does not cover the window"):
            batches(text, 1)


@given(st.tuples(*[st.integers(0, 30)] * 4), st.integers(1, 12), st.integers(0, 5), st.booleans(), st.booleans())
@settings(max_examples=300, deadline=None)
def test_a_warp_fits_the_image_and_the_square(corners, crop, pad, square, mirror):
    x1, x2 = sorted(corners[:2])
    y1, y2 = sorted(corners[2:])
    window, image = Window(0, 1, x1, y1, x2, y2), (31, 31)
    if crop <= 2 * pad:
        return
    w = warp(window, image, crop, pad, square, mirror, np.float32)
    assert min(w.x, w.y) >= 0 and max(w.x + w.width, w.y + w.height) <= 31
    assert w.width >= 1 and w.height >= 1
    assert w.pad_w + w.to_width <= crop and w.pad_h + w.to_height <= crop
    if not pad and not square:
        assert w[:4] == (x1, y1, x2 - x1 + 1, y2 - y1 + 1)


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.5, 1), (-0.5, -1), (1.5, 2), (2.5, 3), (-2.5, -3), (0.49999997, 0), (3.2, 3), (-3.7, -4)]
)
def test_halves_go_away_from_zero(value, rounded):
    for real in (np.float32, np.float64):
        assert windows._round(real(value)) == rounded
