"""Nets with data layers of every kind: they end quickly and leave nothing, and tell what went wrong where."""

import gc
import os
import subprocess
import sys
import threading
import time
import tracemalloc

import cv2
import numpy as np
import pytest
from data_room_running import records, value

from refcaffe import context, data
from refcaffe.checks import CheckError
from refcaffe.kernels.parallel import WORKER_NAME
from refcaffe.net.net import Net
from refcaffe.proto import caffe_pb2, io

h5py = pytest.importorskip("h5py")

LAYERS = """
layer {{ name: "lmdb" type: "Data" top: "a" top: "al" transform_param {{ mirror: true }}
  data_param {{ source: "{0}/lmdb" backend: LMDB batch_size: 3 }} }}
layer {{ name: "leveldb" type: "Data" top: "b" top: "bl"
  data_param {{ source: "{0}/leveldb" backend: LEVELDB batch_size: 3 prefetch: 2 }} }}
layer {{ name: "images" type: "ImageData" top: "c" top: "cl"
  image_data_param {{ source: "{0}/list" root_folder: "{0}/" batch_size: 2 shuffle: true }} }}
layer {{ name: "windows" type: "WindowData" top: "d" top: "dl" transform_param {{ crop_size: 3 }}
  window_data_param {{ source: "{0}/windows" root_folder: "{0}/" batch_size: 2 fg_fraction: 0.5 }} }}
layer {{ name: "rows" type: "HDF5Data" top: "e" hdf5_data_param {{ source: "{0}/files" batch_size: 2 }} }}
layer {{ name: "memory" type: "MemoryData" top: "f" top: "fl"
  memory_data_param {{ batch_size: 1 channels: 1 height: 1 width: 1 }} }}
"""


@pytest.fixture
def folder(tmp_path):
    for backend in ("lmdb", "leveldb"):
        data.write(str(tmp_path / backend), records(7), backend)
    for i in range(3):
        cv2.imwrite(str(tmp_path / f"{i}.png"), np.full((5, 6, 3), i, np.uint8))
    (tmp_path / "list").write_text("0.png 0\n1.png 1\n2.png 2\n")
    (tmp_path / "windows").write_text("# 0\n0.png 3 5 6 2\n1 0.9 0 0 2 2\n1 0.1 1 1 4 4\n")
    with h5py.File(tmp_path / "rows.h5", "w") as file:
        file["e"] = np.arange(6.0).reshape(3, 2)
    (tmp_path / "files").write_text(str(tmp_path / "rows.h5"))
    return tmp_path


def definition(folder, layers=LAYERS):
    return io.parse_text(layers.format(folder), caffe_pb2.NetParameter, "net")


def net(folder, layers=LAYERS):
    made = Net(definition(folder, layers))
    if "memory" in made.layer_dict:
        made.layer_dict["memory"].reset(np.zeros((1, 1, 1, 1), np.float32), np.zeros(1, np.float32))
    return made


def _layer(name, layers=LAYERS):
    """One of the layers."""
    return next(f"layer{part}" for part in layers.split("\nlayer") if f'name: "{name}"' in part)


@pytest.mark.parametrize("reader_era", [False, True])
@pytest.mark.parametrize("passes", [0, 1, 3])
def test_close_is_quick(folder, reader_era, passes):
    with context.build(reader_era=reader_era):
        made = net(folder)
        for _ in range(passes):
            made.forward()
        started = time.monotonic()
        made.close()
        assert time.monotonic() - started < 1


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux's list of open files")
@pytest.mark.parametrize(("reader_era", "count", "only"), [(False, 500, "lmdb"), (False, 50, ""), (True, 50, "")])
def test_500_nets_leave_nothing(folder, reader_era, count, only):
    layers = _layer(only) if only else LAYERS

    def some(count):
        for i in range(count):
            made = net(folder, layers)
            if i % 3:
                made.forward()
            if i % 2:
                made.close()
            del made  # before the next one: a LevelDB is opened once at a time

    def own_threads():
        return [thread for thread in threading.enumerate() if not thread.name.startswith(WORKER_NAME)]

    def held():
        gc.collect()
        end = time.monotonic() + 5
        while len(own_threads()) > threads and time.monotonic() < end:
            time.sleep(0.01)
        return len(os.listdir("/proc/self/fd")), len(own_threads()), tracemalloc.get_traced_memory()[0]

    with context.build(reader_era=reader_era):
        threads = len(own_threads())
        tracemalloc.start()
        try:
            some(10)
            files_before, threads_before, memory_before = held()
            some(count)
            files, now, memory = held()
        finally:
            tracemalloc.stop()
    assert (files, now) == (files_before, threads_before)
    assert memory - memory_before < 100_000  # what NumPy and weakref keep for later grows up to some 30,000


@pytest.mark.parametrize("layer", ["lmdb", "leveldb", "images"])
def test_the_training_thread_is_told(folder, layer, tmp_path):
    """A record that spoils the fourth batch: after three good ones an error that names everything, again and again."""
    bad = caffe_pb2.Datum(data=b"no image", encoded=True).SerializeToString()
    pairs = records(9, {7: value(7)[:5] if layer == "lmdb" else bad})
    for backend in ("lmdb", "leveldb"):
        data.write(str(tmp_path / f"bad-{backend}"), pairs, backend)
    (tmp_path / "bad-list").write_text("0.png 0\n" * 7 + "no.png 1\n")
    where = {
        "lmdb": f"record 7 of '{tmp_path}/bad-lmdb', key '00000007'",
        "leveldb": f"record 7 of '{tmp_path}/bad-leveldb', key '00000007'",
        "images": f"image 7 of '{tmp_path}/bad-list': {tmp_path}/no.png",
    }[layer]
    text = LAYERS.replace("/lmdb", "/bad-lmdb").replace("/leveldb", "/bad-leveldb").replace("/list", "/bad-list")
    text = text.replace("batch_size: 3", "batch_size: 2").replace("shuffle: true", "")
    with net(folder, _layer(layer, text)) as made:
        for _ in range(3):
            made.forward()
        for _ in range(2):
            with pytest.raises(CheckError) as caught:
                made.forward()
            assert where in str(caught.value)
            assert f"prefetch thread of layer '{layer}'" in str(caught.value)
            assert "of net '', forward" in str(caught.value)


def test_a_set_up_that_fails_leaves_nothing(folder):
    before = threading.active_count()
    (folder / "list").write_text("missing.png 1\n")
    for _ in range(3):
        with pytest.raises(CheckError, match=r"Could not load missing\.png"):
            net(folder)
    assert threading.active_count() == before
    (folder / "list").write_text("0.png 1\n")
    net(folder).close()  # the LevelDB is not locked


def test_a_writer_is_active(folder):
    """A process that writes to the LMDB all the time does not disturb who reads it."""
    script = (
        "import lmdb, sys\n"
        "env = lmdb.open(sys.argv[1], map_size=1 << 28)\n"
        "print('writing', flush=True)\n"
        "i = 0\n"
        "while True:\n"
        "    with env.begin(write=True) as transaction:\n"
        "        transaction.put(b'%08d' % (i % 90), bytes(5000))\n"
        "    i += 1\n"
    )
    with net(folder, _layer("lmdb")) as made:
        command = [sys.executable, "-c", script, str(folder / "lmdb")]
        writer = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert writer.stdout.readline() == "writing\n"
            labels = [int(label) for _ in range(200) for label in made.forward()["al"]]
        finally:
            writer.kill()
            writer.communicate()
    assert labels == [i % 7 for i in range(600)]
