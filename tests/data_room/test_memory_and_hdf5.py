"""MemoryData, HDF5Data and HDF5Output."""

import gc
import os
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import context, data
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.layers.base import make
from refcaffe.net.net import Net
from refcaffe.proto import caffe_pb2, io
from refcaffe.rng import c_library

h5py = pytest.importorskip("h5py")


def made(text, tops=2, bottoms=(), dtype=np.float32):
    layer = make(io.parse_text(f'name: "given" {text}', caffe_pb2.LayerParameter, "layer"), dtype)
    blobs = [Blob(dtype=dtype) for _ in range(tops)]
    layer.set_up(list(bottoms), blobs)
    return layer, blobs


class TestMemoryData:
    TEXT = 'type: "MemoryData" memory_data_param { batch_size: 2 channels: 1 height: 2 width: 3 }'

    @pytest.mark.parametrize("dtype", [np.float32, np.float64])
    def test_arrays_are_used_in_place_and_go_round(self, dtype):
        layer, (images, labels) = made(self.TEXT, dtype=dtype)
        given_images, given_labels = np.arange(24, dtype=dtype).reshape(4, 1, 2, 3), np.arange(4, dtype=dtype)
        layer.reset(given_images, given_labels)
        for start in (0, 2, 0, 2, 0):
            layer.forward([], [images, labels])
            assert labels.shape == (2, 1, 1, 1)
            assert labels.cpu_data().reshape(-1).tolist() == [start, start + 1]
            assert np.shares_memory(images.cpu_data(), given_images)
        given_images[...] = 7
        assert (images.cpu_data() == 7).all()

    def test_added_records_are_transformed_at_once(self):
        text = self.TEXT + " transform_param { scale: 0.5 mirror: true } "
        layer, (images, labels) = made(text)
        pixels = np.arange(24, dtype=np.uint8).reshape(4, 1, 2, 3)
        layer.add_datum_vector([data.parse(data.serialize(image, i)) for i, image in enumerate(pixels)])
        drawn = layer.transformer.stream.draws
        assert drawn == 4
        with pytest.raises(CheckError, match="until current data has been consumed"):
            layer.add_mat_vector([pixels[0, 0]] * 2, [0, 0])
        for start in (0, 2):
            layer.forward([], [images, labels])
            assert labels.cpu_data().reshape(-1).tolist() == [start, start + 1]
        layer.add_mat_vector([image[0] for image in pixels[:2]], [8, 9])
        layer.forward([], [images, labels])
        assert labels.cpu_data().reshape(-1).tolist() == [8, 9]
        assert sorted(images.cpu_data()[1].reshape(-1).tolist()) == (pixels[1].reshape(-1) / 2).tolist()

    def test_a_batch_beyond_the_arrays_is_refused(self):
        layer, tops = made(self.TEXT)
        layer.reset(np.zeros((4, 1, 2, 3), np.float32), np.zeros(4, np.float32))
        layer.forward([], tops)
        layer.set_batch_size(3)
        with pytest.raises(CheckError, match="goes beyond the arrays"):
            layer.forward([], tops)

    def test_a_net_takes_arrays(self):
        text = f'layer {{ name: "given" top: "a" top: "b" {self.TEXT} }}'
        with Net(io.parse_text(text, caffe_pb2.NetParameter, "net")) as net:
            net.set_input_arrays(np.ones((2, 1, 2, 3), np.float32), np.array([3, 4], np.float32))
            assert net.forward()["b"].reshape(-1).tolist() == [3, 4]

    @pytest.mark.parametrize("missing", ["batch_size", "channels", "height", "width"])
    def test_every_size_is_needed(self, missing):
        with pytest.raises(CheckError, match="must be specified and positive"):
            made(re.sub(rf"{missing}: \d", "", self.TEXT))


def write_files(folder, sizes, datasets=("data", "label"), width=2):
    """Files of so many rows; row i of all has the label i."""
    number = 0
    names = []
    for size in sizes:
        names.append(str(folder / f"{len(names)}.h5"))
        labels = np.arange(number, number + size)
        with h5py.File(names[-1], "w") as file:
            for name in datasets:
                wide = name == "data"
                file[name] = np.repeat(labels[:, np.newaxis], width, axis=1).astype("f4") if wide else labels
        number += size
    (folder / "list").write_text("\n".join(names))
    return f'type: "HDF5Data" top: "data" top: "label" hdf5_data_param {{ source: "{folder}/list" batch_size: 3 %s }}'


def labels_of(layer, tops, count):
    found = []
    for _ in range(count):
        layer.forward([], tops)
        pixels, labels = (top.cpu_data() for top in tops)
        assert np.array_equal(pixels[:, 0], labels)
        found += labels.astype(int).tolist()
    return found


class TestHdf5Data:
    @given(st.lists(st.integers(1, 5), min_size=1, max_size=3), st.integers(1, 3), st.booleans())
    @settings(max_examples=25, deadline=None)
    def test_row_by_row_and_solvers_share(self, tmp_path_factory, sizes, count, train):
        text = write_files(tmp_path_factory.mktemp("rows"), sizes) % ""
        here = context.current()
        rows = [i % sum(sizes) for i in range(100)]
        try:
            here.solver_count = count
            for here.solver_rank in range(count):
                layer, tops = made(f"phase: {'TRAIN' if train else 'TEST'} {text}")
                wanted = rows[here.solver_rank :: count] if train else rows
                assert labels_of(layer, tops, 5) == wanted[:15]
        finally:
            here.solver_count, here.solver_rank = 1, 0

    def test_before_1_0_every_solver_takes_all(self, tmp_path):
        text = write_files(tmp_path, [2, 3]) % ""
        here = context.current()
        try:
            here.solver_count, here.solver_rank = 2, 1
            with context.build(reader_era=True):
                layer, tops = made(text)
                assert labels_of(layer, tops, 3) == [0, 1, 2, 3, 4, 0, 1, 2, 3]
        finally:
            here.solver_count, here.solver_rank = 1, 0

    def test_shuffled_by_the_c_library(self, tmp_path):
        text = write_files(tmp_path, [6]) % "shuffle: true"
        c_library.srand(42)
        layer, tops = made(text)
        found = labels_of(layer, tops, 4)
        c_library.srand(42)
        order = list(range(6))
        for start in (0, 6):
            c_library.random_shuffle(order)
            assert found[start : start + 6] == order

    def test_numbers_become_the_layers_type(self, tmp_path):
        text = write_files(tmp_path, [4]) % ""
        layer, tops = made(text, dtype=np.float64)
        layer.forward([], tops)
        assert [top.cpu_data().dtype for top in tops] == [np.float64] * 2

    @pytest.mark.parametrize("what", ["gone", "broken", "wide", "short", "empty"])
    def test_a_bad_second_file_is_named(self, tmp_path, what):
        text = write_files(tmp_path, [3, 2]) % ""
        path = tmp_path / "1.h5"
        if what == "gone":
            path.unlink()
        elif what == "broken":
            path.write_bytes(path.read_bytes()[:700])
        else:
            with h5py.File(path, "w") as file:
                rows = 0 if what == "empty" else 2
                file["data"] = np.zeros((rows, 3 if what == "wide" else 2), "f4")
                file["label"] = np.zeros(1 if what == "short" else rows)
        layer, tops = made(text)
        with pytest.raises(CheckError) as caught:
            labels_of(layer, tops, 2)
        message = {
            "wide": "Rows of data have 3 values", "short": "shape(0) == num (1 vs. 2)", "empty": "Check failed: data_",
        }  # fmt: skip
        assert message.get(what, "Failed opening HDF5 file: ") in caught.value.message
        assert "1.h5" in str(caught.value) or what == "wide"


class TestHdf5Output:
    def text(self, path):
        return f'type: "HDF5Output" hdf5_output_param {{ file_name: "{path}" }}'

    @pytest.fixture
    def bottoms(self):
        blobs = [Blob((3, 2)), Blob((3,))]
        for blob in blobs:
            blob.mutable_cpu_data()[...] = np.arange(blob.count).reshape(blob.shape)
        return blobs

    @pytest.mark.parametrize("how", ["close", "drop"])
    def test_the_file_appears_whole(self, tmp_path, bottoms, how):
        path = tmp_path / "out.h5"
        path.write_text("before")
        layer, _ = made(self.text(path), 0, bottoms)
        layer.forward(bottoms, [])
        assert path.read_text() == "before"
        if how == "close":
            layer.close()
            layer.close()
        else:
            del layer
            gc.collect()
        with h5py.File(path) as file:
            assert file["data"].shape == (3, 2, 1, 1)
            assert file["label"][...].reshape(-1).tolist() == [0, 1, 2]
        assert os.listdir(tmp_path) == ["out.h5"]

    def test_a_second_pass_is_refused_and_the_first_stays(self, tmp_path, bottoms):
        layer, _ = made(self.text(tmp_path / "out.h5"), 0, bottoms)
        layer.forward(bottoms, [])
        with pytest.raises(CheckError, match="Failed to make float dataset data"):
            layer.forward(bottoms, [])
        layer.close()
        with h5py.File(tmp_path / "out.h5") as file:
            assert sorted(file) == ["data", "label"]

    def test_a_file_that_cannot_be(self, tmp_path, bottoms):
        path = tmp_path / "no" / "out.h5"
        with pytest.raises(CheckError) as caught:
            made(self.text(path), 0, bottoms)
        assert caught.value.message == f"Check failed: file_id_ >= 0 (-1 vs. 0) Failed to open HDF5 file{path}"

    def test_five_axes(self, tmp_path, bottoms):
        layer, _ = made(self.text(tmp_path / "out.h5"), 0, bottoms)
        wide = [Blob((3, 1, 1, 1, 1)), bottoms[1]]
        with pytest.raises(CheckError, match="Cannot use legacy accessors on Blobs with > 4 axes"):
            layer.forward(wide, [])
        layer.close()


def test_rand_is_glibcs():
    c_library.srand(1)
    assert [c_library.rand() for _ in range(5)] == [1804289383, 846930886, 1681692777, 1714636915, 1957747793]
    c_library.srand(0)
    assert c_library.rand() == 1804289383
    c_library.srand(2**32 - 1)
    assert c_library.rand() == 254925627
