"""The tools around databases: flags, what they write, interruptions and full disks."""

import os
import pty
import signal
import struct
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest

from refcaffe import data, device
from refcaffe.cli.main import main
from refcaffe.proto import caffe_pb2, io


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Five images of 4 x 6 with a list, as the working directory."""
    rng = np.random.default_rng(2)
    (tmp_path / "img").mkdir()
    for i in range(5):
        cv2.imwrite(str(tmp_path / "img" / f"{i}.png"), rng.integers(0, 256, (4, 6, 3)).astype(np.uint8))
    (tmp_path / "list").write_text("".join(f"{i}.png {i}\n" for i in range(5)))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def messages(source, backend="lmdb"):
    found = []
    for key, value in data.read(source, backend):
        found.append((key.decode(), caffe_pb2.Datum.FromString(value)))
    return found


def run(*words, **options):
    command = [sys.executable, "-m", "refcaffe", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, **options)


class TestConvertImageset:
    @pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
    @pytest.mark.parametrize("flag", ["-backend", "--backend="])
    def test_raw_images(self, folder, backend, flag):
        words = [flag, backend] if flag == "-backend" else [flag + backend]
        assert main(["convert_imageset", *words, "--nogray", "img/", "list", "db"]) == 0
        for i, (key, datum) in enumerate(messages("db", backend)):
            image = cv2.imread(f"img/{i}.png")
            assert key == f"0000000{i}_{i}.png"
            assert (datum.label, datum.channels, datum.height, datum.width, datum.encoded) == (i, 3, 4, 6, False)
            assert datum.data == image.transpose(2, 0, 1).tobytes()

    def test_gray_and_resized(self, folder):
        assert main(["convert_imageset", "-gray", "-resize_height", "3", "-resize_width=5", "img/", "list", "db"]) == 0
        for i, (_, datum) in enumerate(messages("db")):
            gray = cv2.resize(cv2.imread(f"img/{i}.png", cv2.IMREAD_GRAYSCALE), (5, 3))
            assert (datum.channels, datum.height, datum.width, datum.data) == (1, 3, 5, gray.tobytes())

    @pytest.mark.parametrize("flags", [["--encoded"], ["--encode_type=PNG"], ["-encoded", "-encode_type", "png"]])
    def test_files_as_they_are(self, folder, flags):
        assert main(["convert_imageset", *flags, "img/", "list", "db"]) == 0
        for i, (_, datum) in enumerate(messages("db")):
            assert (datum.encoded, datum.data) == (True, (folder / "img" / f"{i}.png").read_bytes())
            assert not datum.HasField("channels")

    def test_files_made_anew(self, folder):
        assert main(["convert_imageset", "--encode_type=bmp", "img/", "list", "db"]) == 0
        for i, (_, datum) in enumerate(messages("db")):
            assert datum.data.startswith(b"BM")
            image = cv2.imdecode(np.frombuffer(datum.data, np.uint8), -1)
            assert np.array_equal(image, cv2.imread(f"img/{i}.png"))

    def test_shuffled(self, folder):
        assert main(["convert_imageset", "--shuffle", "img/", "list", "db"]) == 0
        assert sorted(datum.label for _, datum in messages("db")) == list(range(5))

    def test_what_cannot_be_read_is_passed_over(self, folder, capfd):
        (folder / "img" / "2.png").write_bytes(b"no image")
        assert main(["convert_imageset", "img/", "list", "db"]) == 0
        assert [key[:8] for key, _ in messages("db")] == ["00000000", "00000001", "00000003", "00000004"]
        assert "Could not open or find file img/2.png" in capfd.readouterr().err

    @pytest.mark.parametrize(
        ("words", "status", "said"),
        [
            (["img/", "list"], 1, ""),
            (["--help"], 0, ""),
            (["--no-such", "img/", "list", "db"], 1, "ERROR: unknown command line flag 'no-such'"),
            (["--gpu=1", "img/", "list", "db"], 1, "ERROR: unknown command line flag 'gpu'"),
            (["--resize_width=x", "img/", "list", "db"], 1, "ERROR: illegal value 'x' specified for int32 flag"),
            (["--backend=sqlite", "img/", "list", "db"], 134, "Unknown database backend"),
            (["--encode_type=nothing", "img/", "list", "db"], 134, "Could not encode img/0.png as 'nothing'"),
            (["img/", "list", "img"], 134, "mkdir img failed"),
        ],
    )
    def test_refusals_leave_nothing(self, folder, capfd, words, status, said):
        before = sorted(os.listdir())
        assert main(["convert_imageset", *words]) == status
        out, err = capfd.readouterr()
        assert said in err
        assert ("Flags from tools/convert_imageset.cpp:" in out) == (status < 2 and not said)
        assert sorted(os.listdir()) == before


class TestComputeImageMean:
    def test_sums_in_the_order_of_records(self, folder, capfd):
        rng = np.random.default_rng(4)
        images = rng.uniform(-1000, 1000, (50, 2, 3, 4)).astype(np.float32)
        data.write("db", [(b"%03d" % i, data.serialize(image)) for i, image in enumerate(images)])
        assert main(["compute_image_mean", "db", "mean"]) == 0
        total = np.zeros((2, 3, 4), np.float32)
        for image in images:
            total += image
        mean = total / np.float32(50)
        proto = io.read_binary("mean", caffe_pb2.BlobProto)
        assert (proto.num, proto.channels, proto.height, proto.width) == (1, 2, 3, 4)
        assert np.array_equal(np.array(proto.data, np.float32), mean.reshape(-1))
        said = capfd.readouterr().err
        assert "Processed 50 files." in said
        assert f"mean_value channel [0]: {mean[0].astype(float).mean():.4g}"[:28] in said

    @pytest.mark.parametrize("era", [False, True])
    def test_encoded_records(self, folder, capfd, monkeypatch, era):
        assert main(["convert_imageset", "--encoded", "img/", "list", "db"]) == 0
        environment = {**os.environ, "REFCAFFE_READER_ERA": "1" if era else ""}
        ended = run("compute_image_mean", "db", env=environment)
        assert ended.returncode == 0
        assert "Decoding Datum" in ended.stderr
        assert ("mean_value channel [0]: " in ended.stderr) != era

    @pytest.mark.parametrize("bad", ["size", "image", "none", "missing"])
    def test_a_bad_record_is_named(self, folder, capfd, bad):
        pixels = np.zeros((1, 2, 2), np.uint8)
        good = [(b"a", data.serialize(pixels)), (b"b", data.serialize(pixels))]
        if bad == "size":
            good.append((b"c", data.serialize(np.zeros((1, 2, 3), np.uint8))))
        elif bad == "image":
            good.append((b"c", caffe_pb2.Datum(data=b"no image", encoded=True).SerializeToString()))
        if bad != "missing":
            data.write("db", [] if bad == "none" else good)
        assert main(["compute_image_mean", "db", "mean"]) == 134
        said = capfd.readouterr().err
        wanted = {"none": "There are no records in 'db'", "missing": "No such file or directory"}
        assert wanted.get(bad, "record 2 of 'db', key 'c'") in said
        assert not os.path.exists("mean")


class TestExtractFeatures:
    NET = """
    layer { name: "d" type: "Data" top: "data" top: "label" data_param { source: "db" batch_size: 2 backend: LMDB } }
    layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param {
      num_output: 3 weight_filler { type: "constant" value: 1 } } }
    """

    @pytest.fixture
    def net(self, folder):
        data.write("db", [(b"%d" % i, data.serialize(np.full((1, 2, 2), i, np.uint8), i)) for i in range(3)])
        (folder / "net").write_text(self.NET)
        (folder / "weights").write_bytes(caffe_pb2.NetParameter().SerializeToString())
        return folder

    def test_blobs_by_name(self, net, capfd):
        assert main(["extract_features", "weights", "net", "ip,label", "a,b", "2", "lmdb"]) == 0
        assert [list(datum.float_data) for _, datum in messages("a")] == [[i * 4.0] * 3 for i in (0, 1, 2, 0)]
        assert [(key, list(datum.float_data)) for key, datum in messages("b")] == [
            (f"000000000{n}", [float(i)]) for n, i in enumerate((0, 1, 2, 0))
        ]
        said = capfd.readouterr().err
        assert "Successfully extracted the features!" in said
        assert "Initializing net" not in said

    @pytest.mark.parametrize(
        ("words", "status"),
        [
            (["ip", "a,b", "1", "lmdb"], 134), (["nothing", "a", "1", "lmdb"], 134), (["ip", "a", "1", "x"], 134),
            (["ip,label", "a,db", "1", "lmdb"], 134), (["ip", "a"], 1), (["ip", "a", "1", "lmdb", "GPU"], 134),
        ],
    )  # fmt: skip
    def test_refusals_leave_nothing(self, net, words, status):
        before = sorted(os.listdir())
        with device.use("cpu"):  # which has no GPU
            assert main(["extract_features", "weights", "net", *words]) == status
        assert sorted(os.listdir()) == before

    def test_a_failure_half_way_leaves_nothing(self, net, capfd):
        records = list(data.read("db"))
        os.rename("db", "old")
        data.write("db", [*records, (b"3", data.serialize(np.zeros((1, 3, 3), np.uint8), 3))])
        before = sorted(os.listdir())
        assert main(["extract_features", "weights", "net", "ip", "a", "9", "lmdb"]) == 134
        assert sorted(os.listdir()) == before
        assert "record 3 of 'db'" in capfd.readouterr().err


class TestConvertMnistData:
    def test_images_and_signed_labels(self, folder):
        pixels = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
        (folder / "images").write_bytes(struct.pack(">4I", 2051, 2, 3, 4) + pixels.tobytes())
        (folder / "labels").write_bytes(struct.pack(">2I", 2049, 2) + bytes([7, 200]))
        assert main(["convert_mnist_data", "images", "labels", "db"]) == 0
        found = messages("db")
        assert [(key, datum.label) for key, datum in found] == [("00000000", 7), ("00000001", -56)]
        assert found[1][1].data == pixels[1].tobytes()
        (folder / "labels").write_bytes(struct.pack(">2I", 2049, 2) + bytes([7]))
        assert main(["convert_mnist_data", "images", "labels", "other"]) == 134
        assert main(["convert_mnist_data", "images", "missing", "other"]) == 134
        assert not os.path.exists("other")


@pytest.mark.skipif(os.name == "nt", reason="signals, limits and terminals of POSIX")
class TestInRealProcesses:
    def large_list(self, folder, count):
        cv2.imwrite(str(folder / "img" / "large.png"), np.zeros((300, 300, 3), np.uint8))
        (folder / "list").write_text("large.png 1\n" * count)

    @pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
    def test_ctrl_c_leaves_nothing(self, folder, backend):
        self.large_list(folder, 100000)
        before = sorted(os.listdir())
        command = [sys.executable, "-m", "refcaffe", "convert_imageset", f"--backend={backend}", "img/", "list", "db"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        end = time.monotonic() + 60
        while sorted(os.listdir()) == before and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
        assert process.returncode == -signal.SIGINT, said
        assert said.endswith("\ninterrupted\n")
        assert sorted(os.listdir()) == before

    @pytest.mark.parametrize("backend", ["lmdb", "leveldb"])
    def test_a_full_disk_leaves_nothing(self, folder, backend):
        """A limit of the size of files stands for the disk's."""
        self.large_list(folder, 60)
        before = sorted(os.listdir())
        script = (
            "import resource, sys\n"
            "resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))\n"
            "from refcaffe.cli.main import main\n"
            "sys.exit(main(sys.argv[1:]))\n"
        )
        words = ["convert_imageset", f"--backend={backend}", "img/", "list", "db"]
        ended = subprocess.run(
            [sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert ended.returncode == 134
        assert "File too large" in ended.stderr or "Input/output error" in ended.stderr  # as liblmdb has it
        assert "Traceback" not in ended.stderr
        assert sorted(os.listdir()) == before

    def test_a_terminal_shows_how_far_it_is(self, folder):
        self.large_list(folder, 40)
        leader, follower = pty.openpty()
        command = [sys.executable, "-m", "refcaffe", "convert_imageset", "img/", "list", "db"]
        process = subprocess.Popen(command, stderr=follower, stdout=follower, env={**os.environ, "COLUMNS": "100"})
        os.close(follower)
        shown = b""
        try:
            while chunk := os.read(leader, 4096):
                shown += chunk
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(leader)
        assert process.wait(30) == 0
        assert b"converting" in shown
        assert b"Processed 40 files." in shown
