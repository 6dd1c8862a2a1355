"""The Data layer in trouble and at its end."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref

import numpy as np
import pytest
from data_room_running import Running, at_rest, records, value

from refcaffe import data
from refcaffe.checks import CheckError
from refcaffe.data import lmdb_read
from refcaffe.layers.data import Data
from refcaffe.net.net import Net
from refcaffe.proto import caffe_pb2, io


class TestFaults:
    """Faults behind the first batch: they come when the batch that they spoil is asked for."""

    def failing(self, tmp_path, bad, message, record=7, **options):
        path = str(tmp_path / "db")
        data.write(path, records(10, {record: bad}))
        running = Running(path, batch_size=3, **options)
        batches = record // 3
        assert [running.forward() for _ in range(batches)] == np.arange(3 * batches).reshape(-1, 3).tolist()
        for _ in range(2):
            with pytest.raises(CheckError) as caught:
                running.forward()
            assert caught.value.message.strip() == message
            shown = str(caught.value)
            assert f"record {record} of '{path}', key '0000000{record}'" in shown
            assert "prefetch thread of layer 'records'" in shown
        assert running.layer.prefetcher.error is caught.value
        return shown

    @pytest.mark.parametrize("prefetch", [1, 4])
    def test_another_size(self, tmp_path, prefetch):
        self.failing(tmp_path, value(7, (1, 2, 5)), "Check failed: datum_width == width (5 vs. 3)", prefetch=prefetch)

    def test_other_channels(self, tmp_path):
        self.failing(tmp_path, value(7, (3, 2, 3)), "Check failed: channels == datum_channels (1 vs. 3)")

    def test_a_crop_that_does_not_fit_the_first_of_a_batch(self, tmp_path):
        options = {"record": 6, "transform": "crop_size: 2", "phase": "TEST"}
        self.failing(tmp_path, value(6, (1, 1, 3)), "Check failed: datum_height >= crop_size (1 vs. 2)", **options)

    def test_a_datum_cut_off(self, tmp_path):
        shown = self.failing(tmp_path, value(7)[:-6], "A datum of 1 x 2 x 3 has only 0 values in its float_data.")
        assert "it is no whole Datum: cut off at byte 8 of 10" in shown

    def test_no_datum_at_all(self, tmp_path):
        shown = self.failing(tmp_path, b"\xff\xfenonsense", "Check failed: channels == datum_channels (1 vs. 0)")
        assert "it is no whole Datum: a number too long at byte 0" in shown or "no field" in shown

    def test_an_empty_value(self, tmp_path):
        self.failing(tmp_path, b"", "Check failed: channels == datum_channels (1 vs. 0)")

    def test_an_image_that_does_not_decode(self, tmp_path):
        bad = caffe_pb2.Datum(data=b"no image", encoded=True).SerializeToString()
        self.failing(tmp_path, bad, "Check failed: height <= img_height (2 vs. 0)")

    def test_the_error_does_not_hold_the_database(self, tmp_path):
        path = str(tmp_path / "db")
        data.write(path, records(3, {1: value(1, (1, 9, 9))}))
        with Running(path) as running, pytest.raises(CheckError) as caught:
            running.forward()
        at = caught.value.__traceback__
        while at is not None:
            assert not any(isinstance(local, memoryview) for local in at.tb_frame.f_locals.values())
            at = at.tb_next

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("missing", "Check failed: mdb_status == 0 (2 vs. 0) No such file or directory"),
            ("empty", "There are no records in"),
            ("bad", "Check failed: datum_channels > 0 (0 vs. 0)"),
        ],
    )
    def test_at_set_up(self, tmp_path, name, message):
        if name != "missing":
            data.write(str(tmp_path / name), [(b"k", b"\xff")] * (name == "bad"))
        param = caffe_pb2.NetParameter(name="n")
        layer = param.layer.add(name="records", type="Data", top=["data"])
        layer.data_param.source, layer.data_param.batch_size = str(tmp_path / name), 1
        layer.data_param.backend = caffe_pb2.DataParameter.LMDB
        with pytest.raises(CheckError) as caught:
            Net(param)
        assert caught.value.message.startswith(message)
        assert "layer 'records'" in str(caught.value)
        assert str(tmp_path / name) in str(caught.value)

    def test_damaged_pages(self, tmp_path):
        path = str(tmp_path / "db")
        data.write(path, records(300))
        with open(os.path.join(path, "data.mdb"), "r+b") as file:
            pages = file.read()
            size = 4096
            leaves = [at for at in range(2 * size, len(pages), size) if pages[at + 10] == 2]
            file.seek(leaves[-1])
            file.write(bytes(size))
        with Running(path, batch_size=300) as running, pytest.raises(CheckError) as caught:
            running.forward()
        assert caught.value.message.startswith("Check failed: mdb_status == 0 (-30796 vs. 0) MDB_CORRUPTED")
        assert f"LMDB '{path}'" in str(caught.value)
        assert "behind record" in str(caught.value)

    def test_a_removed_database_goes_on(self, db):
        with Running(db, prefetch=1) as running:
            for name in os.listdir(db):
                os.remove(os.path.join(db, name))
            assert [running.forward() for _ in range(5)] == [[0, 1], [2, 3], [4, 0], [1, 2], [3, 4]]


class TestTheEnd:
    def test_close_is_quick_final_and_may_come_again(self, db):
        running = Running(db)
        running.forward()
        started = time.monotonic()
        running.layer.close()
        running.layer.close()
        assert time.monotonic() - started < 1
        with pytest.raises(CheckError, match="The layer was closed"):
            running.forward()

    def test_close_without_set_up(self, db):
        layer = Data(io.parse_text(f'data_param {{ source: "{db}" backend: LMDB }}', caffe_pb2.LayerParameter, "p"))
        assert lmdb_read._environments
        layer.close()

    def test_a_batch_in_the_making_does_not_hold_it_up(self, tmp_path):
        path = str(tmp_path / "db")
        data.write(path, [(b"k", value(1, (3, 256, 256)))])
        running = Running(path, batch_size=700, prefetch=1, transform="crop_size: 8 mean_value: 1")
        started = time.monotonic()
        running.layer.close()
        assert time.monotonic() - started < 1

    @pytest.mark.parametrize("in_a_cycle", [False, True])
    @pytest.mark.parametrize("set_up", [False, True])
    def test_a_dropped_layer(self, db, in_a_cycle, set_up):
        if set_up:
            layer = Running(db).layer
        else:
            layer = Data(io.parse_text(f'data_param {{ source: "{db}" backend: LMDB }}', caffe_pb2.LayerParameter, ""))
        if in_a_cycle:
            layer.itself = layer
        gone = weakref.ref(layer)
        del layer
        gc.collect()
        assert gone() is None

    def test_a_layer_collected_by_its_own_thread(self, db):
        running = Running(db)
        running.forward()
        running.layer.itself = running.layer
        prefetcher = running.layer.prefetcher
        push, collected = prefetcher.full.push, threading.Event()

        def collecting_push(batch):
            gc.collect()
            collected.set()
            push(batch)

        prefetcher.full.push = collecting_push
        del running
        gc.disable()
        try:
            prefetcher.free.push(prefetcher.batches[0])
            started = time.monotonic()
            assert collected.wait(5)
            assert time.monotonic() - started < 4
            assert prefetcher._ended.wait(5)
        finally:
            gc.enable()

    def test_prefetch_0_does_not_hang(self, db):
        with Running(db, prefetch=0) as running, pytest.raises(CheckError, match="wait forever"):
            running.forward()

    @pytest.mark.skipif(os.name == "nt", reason="signals of POSIX")
    def test_ctrl_c_while_waiting(self, db):
        with Running(db) as running:
            prefetcher = running.layer.prefetcher
            assert at_rest(prefetcher.full, 4)
            held = [prefetcher.full.pop() for _ in range(4)]
            timer = threading.Timer(0.1, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
            timer.start()
            started = time.monotonic()
            with pytest.raises(KeyboardInterrupt):
                running.forward()
            assert time.monotonic() - started < 1
            timer.join()
            for batch in held:
                prefetcher.full.push(batch)
            assert [running.forward() for _ in range(5)][:3] == [[0, 1], [2, 3], [4, 0]]

    @pytest.mark.parametrize("ending", ["pass", "raise SystemExit(0)", "import os; os.kill(os.getpid(), 2)"])
    def test_the_interpreter_ends(self, db, ending):
        script = (
            "import sys\n"
            "from refcaffe.blob import Blob\n"
            "from refcaffe.layers.data import Data\n"
            "from refcaffe.proto import caffe_pb2, io\n"
            "text = f'data_param {{ source: \"{sys.argv[1]}\" backend: LMDB batch_size: 3 }}'\n"
            "layer = Data(io.parse_text(text, caffe_pb2.LayerParameter, 'p'))\n"
            "tops = [Blob()]\n"
            "layer.set_up([], tops)\n"
            "layer.forward([], tops)\n"
            f"{ending}\n"
        )
        command = [sys.executable, "-c", script, db]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        if "kill" in ending:
            assert "KeyboardInterrupt" in ended.stderr
            assert ended.stderr.count("Traceback") == 1
        else:
            assert (ended.returncode, ended.stderr) == (0, "")
