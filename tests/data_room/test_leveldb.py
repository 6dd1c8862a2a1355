"""LevelDB databases: those of LevelDB itself, our own, damage, and who may open them."""

import os
import subprocess
import sys
import zipfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from data_room_running import records
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import data
from refcaffe.checks import CheckError
from refcaffe.data import leveldb_files, leveldb_read, leveldb_write
from refcaffe.kernels.leveldb import masked_crc, uncompress

HERE = Path(__file__).parent


def value(i):
    return (b"%d " % i) * (i % 97) + bytes(range(i % 256))


def in_the_archive():
    """What LevelDB 1.22 was told to put into ``written_by_leveldb.zip``: tables that Snappy compressed, and a log."""
    kept = {b"%05d" % i: value(i) for i in range(600) if i % 5 and i % 50 != 3}
    kept |= {b"%05d" % i: value(i + 1) for i in range(0, 600, 10)}
    del kept[b"00001"]
    return [*sorted(kept.items()), (b"a last one", b"in the log" * 4000), (b"zz", b"x" * 70000)]


@pytest.fixture
def original(tmp_path):
    path = tmp_path / "original"
    with zipfile.ZipFile(HERE / "written_by_leveldb.zip") as archive:
        archive.extractall(path)
    return path


@pytest.fixture
def own(tmp_path):
    path = str(tmp_path / "own")
    data.write(path, records(5), "leveldb")
    return path


class TestReadingLevelDbsOwn:
    def test_tables_log_deletions_and_old_names(self, original):
        assert list(data.read(str(original), "leveldb")) == in_the_archive()

    def test_nothing_is_changed(self, original):
        before = {path.name: path.read_bytes() for path in original.iterdir()}
        list(data.read(str(original), "leveldb"))
        after = {path.name: path.read_bytes() for path in original.iterdir()}
        assert after == {**before, "LOCK": b""}

    def test_a_folder_that_cannot_be_written(self, original, monkeypatch):
        def refused(file):
            raise PermissionError(13, "Permission denied")

        monkeypatch.setattr(leveldb_read, "_lock_file", refused)
        assert len(list(data.read(str(original), "leveldb"))) == len(in_the_archive())

    def test_values_outlive_the_cursors_move(self, original):
        cursor = data.open_cursor(str(original), "leveldb")
        values = []
        while cursor.valid:
            values.append(cursor.value())
            cursor.next()
        assert [bytes(kept) for kept in values] == [kept for _, kept in in_the_archive()]
        cursor.close()

    def test_recorded_files(self, tmp_path):
        fixture = HERE.parents[1] / "fixtures" / "data" / "db" / "leveldb-files"
        if not fixture.is_dir():
            pytest.skip("the recorded cases are not here")
        arrays = np.load(fixture / "given.npz")
        offsets, values = arrays["db_offsets"], arrays["db_values"]
        wanted = {
            bytes(key): values[start:end].tobytes()
            for key, start, end in zip(arrays["db_keys"], offsets, offsets[1:], strict=False)
        }
        (tmp_path / "db").mkdir()
        for path in (fixture / "db").iterdir():
            (tmp_path / "db" / path.name).write_bytes(path.read_bytes())
        assert list(data.read(str(tmp_path / "db"), "leveldb")) == sorted(wanted.items())


class TestWriting:
    @given(
        st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=3000)), max_size=40),
        st.sampled_from([1, 2000, 1 << 20]),
        st.sampled_from([1, 500, 65536]),
    )
    @settings(max_examples=30, deadline=None)
    def test_round_trip(self, tmp_path_factory, pairs, table_bytes, block_bytes):
        path = str(tmp_path_factory.mktemp("round") / "db")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(leveldb_write, "_TABLE_BYTES", table_bytes)
            patch.setattr(leveldb_write, "_BLOCK_BYTES", block_bytes)
            data.write(path, pairs, "leveldb")
        assert list(data.read(path, "leveldb")) == sorted(dict(pairs).items())

    def test_leveldb_reads_it(self, tmp_path, monkeypatch):
        plyvel = pytest.importorskip("plyvel")
        for table_bytes in (1000, 1 << 20):
            monkeypatch.setattr(leveldb_write, "_TABLE_BYTES", table_bytes)
            path = str(tmp_path / str(table_bytes))
            pairs = [(b"%d" % (i * 7 % 90), value(i) * 5) for i in range(150)]
            data.write(path, pairs, "leveldb")
            with plyvel.DB(path, paranoid_checks=True) as database:
                assert list(database.iterator(verify_checksums=True)) == sorted(dict(pairs).items())
                assert database.get(b"13") == dict(pairs)[b"13"]

    def test_we_read_what_leveldb_writes(self, tmp_path):
        plyvel = pytest.importorskip("plyvel")
        for options in ({"write_buffer_size": 4096, "block_size": 256}, {"compression": None}, {}):
            path = str(tmp_path / str(len(options)))
            with plyvel.DB(path, create_if_missing=True, **options) as database:
                for i in range(400):
                    database.put(b"%d" % (i % 250), value(i))
            wanted = {b"%d" % (i % 250): value(i) for i in range(400)}
            assert list(data.read(path, "leveldb")) == sorted(wanted.items())

    def test_nothing_stays_of_a_failure(self, tmp_path):
        def failing():
            yield from records(5)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            data.write(str(tmp_path / "db"), failing(), "leveldb")
        assert os.listdir(tmp_path) == []

    def test_into_a_folder_that_is_there(self, tmp_path):
        (tmp_path / "db").mkdir()
        (tmp_path / "db" / "note").write_text("mine")
        data.write(str(tmp_path / "db"), records(3), "leveldb")
        assert list(data.read(str(tmp_path / "db"), "leveldb")) == records(3)
        assert (tmp_path / "db" / "note").read_text() == "mine"

    def test_an_existing_database_is_refused(self, own):
        with pytest.raises(CheckError) as caught:
            data.create(own, "leveldb")
        message = f"Failed to open leveldb {own}\nInvalid argument: {own}: exists (error_if_exists is true)"
        assert caught.value.message == f"Check failed: status.ok() {message}"

    @pytest.mark.parametrize("name", ["file", "no/folder/db"])
    def test_a_name_that_cannot_be(self, tmp_path, name):
        (tmp_path / "file").write_text("mine")
        with pytest.raises(CheckError, match=r"IO error: lock .*(Not a directory|No such file)"):
            data.create(str(tmp_path / name), "leveldb")
        assert (tmp_path / "file").read_text() == "mine"


class TestOpening:
    def test_once_at_a_time_in_a_process(self, own):
        cursor = data.open_cursor(own, "leveldb")
        for again in (own, os.path.join(own, "..", "own")):
            with pytest.raises(CheckError, match="already held by process"):
                data.open_cursor(again, "leveldb")
        cursor.close()
        data.open_cursor(own, "leveldb").close()

    def test_a_dropped_one_is_closed(self, own):
        reading = data.read(own, "leveldb")
        next(reading)
        assert leveldb_read._open
        del reading
        assert not leveldb_read._open

    @pytest.mark.skipif(os.name == "nt", reason="file locks of POSIX")
    def test_once_at_a_time_on_a_machine(self, own):
        script = "import sys; from refcaffe import data; data.open_cursor(sys.argv[1], 'leveldb')"
        cursor = data.open_cursor(own, "leveldb")
        ended = subprocess.run([sys.executable, "-c", script, own], capture_output=True, text=True, check=False)
        cursor.close()
        assert f"IO error: lock {own}/LOCK: Resource temporarily unavailable" in ended.stderr
        subprocess.run([sys.executable, "-c", script, own], check=True)

    def test_missing(self, tmp_path):
        with pytest.raises(CheckError) as caught:
            data.open_cursor(str(tmp_path / "db"), "leveldb")
        reason = f"Invalid argument: {tmp_path / 'db'}: does not exist (create_if_missing is false)"
        assert caught.value.message.endswith(reason)
        assert os.listdir(tmp_path) == []


class TestDamage:
    def refused(self, path, status, call=lambda path: list(data.read(path, "leveldb"))):
        with pytest.raises(CheckError) as caught:
            call(str(path))
        assert status in caught.value.message
        assert f"LevelDB '{path}'" in str(caught.value)
        assert not leveldb_read._open

    def test_files_that_are_gone(self, original):
        (original / "000007.ldb").unlink()
        self.refused(original, "Corruption: 1 missing files; e.g.: ")
        (original / "MANIFEST-000012").unlink()
        self.refused(original, "Corruption: CURRENT points to a non-existent file")

    def test_a_table_removed_while_reading(self, tmp_path, monkeypatch):
        monkeypatch.setattr(leveldb_write, "_TABLE_BYTES", 40)
        path = tmp_path / "db"
        data.write(str(path), records(6), "leveldb")

        def call(path):
            reading = data.read(path, "leveldb")
            next(reading)
            os.unlink(os.path.join(path, "000004.ldb"))
            list(reading)

        self.refused(path, f"IO error: {path}/000004.ldb: No such file or directory", call)

    @pytest.mark.parametrize("name", ["000014.log", "000007.ldb", "MANIFEST-000012", "CURRENT", "000005.sst"])
    def test_any_byte(self, original, name):
        """Whatever byte is changed, the records come or a CheckError does."""
        path, rng = original / name, np.random.default_rng(len(name))
        whole = path.read_bytes()
        for _ in range(60):
            broken = bytearray(whole)
            broken[rng.integers(len(whole))] ^= 1 << rng.integers(8)
            path.write_bytes(broken[: rng.integers(len(whole))] if rng.random() < 0.2 else broken)
            with suppress(CheckError):
                list(data.read(str(original), "leveldb"))
            assert not leveldb_read._open

    def test_a_log_is_checked(self, original):
        path = original / "000014.log"
        broken = bytearray(path.read_bytes())
        broken[20000] ^= 1
        path.write_bytes(broken)
        self.refused(original, "Corruption: 000014.log: checksum mismatch at byte 0")

    def test_a_log_cut_off_ends_there(self, original):
        path = original / "000014.log"
        path.write_bytes(path.read_bytes()[:30000])
        kept = dict(data.read(str(original), "leveldb"))
        assert b"a last one" not in kept
        assert kept[b"00002"] == value(2)

    def test_no_table(self, original):
        (original / "000007.ldb").write_bytes(b"no table" * 100)
        self.refused(original, "Corruption: 000007.ldb: not an sstable (bad magic number)")

    def test_a_block_of_another_kind(self, own):
        path = Path(own) / "000002.ldb"
        broken = bytearray(path.read_bytes())
        trailer = leveldb_files.TRAILER
        size = next(  # the first block begins the file; what kind it is stands behind it
            at for at in range(len(broken))
            if trailer.unpack_from(broken, at) == (0, masked_crc(bytes(broken[:at]) + b"\0"))
        )  # fmt: skip
        broken[size] = 2
        path.write_bytes(broken)
        self.refused(own, "Corruption: 000002.ldb: bad block type 2")


class TestSnappy:
    def test_literals_and_copies_of_every_kind(self):
        text = bytes(range(70))
        elements = (
            b"\xc8\x01",  # 200 bytes
            bytes([60 << 2, 69]), text,  # a literal whose length has a byte of its own
            bytes([(11 - 4) << 2 | 0 << 5 | 1, 70]),  # 11 bytes from 70 back
            bytes([(64 - 1) << 2 | 2, 1, 0]),  # 64 bytes of the one before
            bytes([(55 - 1) << 2 | 3, 100, 0, 0, 0]),  # 55 bytes from 100 back
        )  # fmt: skip
        plain = text + text[:11] + text[10:11] * 64
        plain += plain[len(plain) - 100 :][:55]
        assert bytes(uncompress(b"".join(elements))) == plain

    @pytest.mark.parametrize(
        "block",
        [
            b"", b"\x80", b"\x05", b"\x01\x00", b"\x02\x00a", b"\x01\x04ab", b"\x04\x01\x01", b"\x08\x00a\x11\x02",
            b"\x08\x00a\x11\x00", b"\x05\xf0", b"\xff\xff\xff\xff\xff\x01\x00a", b"\xff\xff\xff\x7f\x00a",
        ],
    )  # fmt: skip
    def test_damage(self, block):
        assert uncompress(block) is None

    def test_nothing(self):
        assert bytes(uncompress(b"\0")) == b""


def test_checksums():
    def unmasked(data):
        crc = (masked_crc(data) - 0xA282EAD8) & 0xFFFFFFFF
        return (crc >> 17 | crc << 15) & 0xFFFFFFFF

    assert unmasked(b"123456789") == 0xE3069283
    assert unmasked(bytes(32)) == 0x8A9136AA
    assert unmasked(b"\xff" * 32) == 0x62A8AB43
    assert unmasked(bytes(range(32))) == 0x46DD794E
