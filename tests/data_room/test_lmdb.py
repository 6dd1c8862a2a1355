"""LMDB databases: order, writing as a whole, damage, several openings."""

import os
import subprocess
import sys

import lmdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import data
from refcaffe.checks import CheckError
from refcaffe.data import lmdb_read
from refcaffe.proto import caffe_pb2

RECORDS = [(b"%03d" % i, bytes([i]) * (40 + 997 * (i % 7))) for i in range(60)]


@pytest.fixture
def db(tmp_path):
    path = str(tmp_path / "db")
    data.write(path, RECORDS)
    return path


@given(st.dictionaries(st.binary(min_size=1, max_size=40), st.binary(max_size=5000), max_size=30))
@settings(max_examples=25, deadline=None)
def test_round_trip_in_the_order_of_keys(tmp_path_factory, records):
    path = str(tmp_path_factory.mktemp("round") / "db")
    data.write(path, records.items())
    assert list(data.read(path)) == sorted(records.items())


def test_a_key_that_comes_again_replaces(tmp_path):
    path = str(tmp_path / "db")
    data.write(path, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3")])
    assert list(data.read(path)) == [(b"a", b"3"), (b"b", b"2")]


def test_the_map_grows(tmp_path):
    path = str(tmp_path / "db")
    big = os.urandom(1 << 20)
    data.write(path, ((b"%03d" % i, big) for i in range(70)))  # in several transactions, beyond 64 MiB
    assert sum(len(value) for _, value in data.read(path)) == 70 << 20


def test_cursor_walks_and_starts_again(db):
    cursor = data.open_cursor(db, caffe_pb2.DataParameter.LMDB)
    for _ in range(2):
        assert cursor.valid
        assert (cursor.key(), bytes(cursor.value())) == RECORDS[0]
        cursor.next()
        assert cursor.key() == RECORDS[1][0]
        cursor.seek_to_first()
    for _ in RECORDS:
        cursor.next()
    assert not cursor.valid
    cursor.close()
    cursor.close()


class TestWritingAsAWhole:
    def test_nothing_stays_of_a_failure(self, tmp_path):
        def failing():
            yield from RECORDS
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            data.write(str(tmp_path / "db"), failing())
        assert os.listdir(tmp_path) == []

    def test_not_there_until_the_end(self, tmp_path):
        path = tmp_path / "db"
        with data.create(str(path)) as writer:
            writer.put(b"a", b"b")
            writer.commit()
            assert not path.exists()
        assert path.exists()
        assert os.listdir(tmp_path) == ["db"]

    @pytest.mark.parametrize("what", ["folder", "file", "no parent"])
    def test_refuses_a_name_in_use(self, tmp_path, what):
        path = tmp_path / "db"
        if what == "no parent":
            path = path / "in" / "nothing"
        elif what == "folder":
            path.mkdir()
        else:
            path.write_text("mine")
        with pytest.raises(CheckError) as caught:
            data.write(str(path), RECORDS)
        assert caught.value.message == (
            f"Check failed: mkdir(source.c_str(), 0744) == 0 (-1 vs. 0) mkdir {path} failed"
        )
        assert what != "file" or path.read_text() == "mine"

    def test_a_key_that_liblmdb_refuses(self, tmp_path):
        with pytest.raises(CheckError, match=r"mdb_status == 0 \(-30781 vs. 0\) MDB_BAD_VALSIZE"):
            data.write(str(tmp_path / "db"), [(b"k" * 600, b"")])
        assert os.listdir(tmp_path) == []


class TestDamage:
    def refused(self, path, message):
        with pytest.raises(CheckError) as caught:
            data.open_cursor(str(path))
        assert caught.value.message.startswith(message)
        assert f"LMDB '{path}'" in str(caught.value)
        return caught.value

    def test_no_folder(self, tmp_path):
        self.refused(tmp_path / "db", "Check failed: mdb_status == 0 (2 vs. 0) No such file or directory")
        assert os.listdir(tmp_path) == []

    def test_no_file_in_it(self, tmp_path):
        self.refused(tmp_path, "Check failed: mdb_status == 0 (2 vs. 0) No such file or directory")
        assert os.listdir(tmp_path) == []

    def test_a_file_in_its_place(self, tmp_path):
        (tmp_path / "db").write_bytes(b"x")
        self.refused(tmp_path / "db", "Check failed: mdb_status == 0 (20 vs. 0) Not a directory")

    @pytest.mark.parametrize("size", [1, 100, 5000, 100_000])
    def test_garbage(self, tmp_path, size):
        (tmp_path / "data.mdb").write_bytes(np.random.default_rng(size).bytes(size))
        self.refused(tmp_path, "Check failed: mdb_status == 0 (-30793 vs. 0) MDB_INVALID: ")

    @pytest.mark.parametrize("kept", [0.2, 0.5, 0.9, 0.99])
    def test_cut_off(self, db, kept):
        path = os.path.join(db, "data.mdb")
        os.remove(os.path.join(db, "lock.mdb"))
        os.truncate(path, int(os.path.getsize(path) * kept))
        error = self.refused(db, "Check failed: mdb_status == 0 (-30796 vs. 0) MDB_CORRUPTED")
        assert "behind the end of the file" in str(error) or "beyond the end of the file" in str(error)
        assert not lmdb_read._environments

    @pytest.mark.parametrize("seed", range(40))
    def test_bytes_overwritten_anywhere(self, db, seed):
        rng = np.random.default_rng(seed)
        path = os.path.join(db, "data.mdb")
        size = os.path.getsize(path)
        with open(path, "r+b") as file:
            for _ in range(rng.integers(1, 30)):
                # Mostly where it hurts: in the first bytes of a page.
                file.seek(int(rng.integers(0, size // 4096)) * 4096 + int(rng.integers(0, 160)))
                file.write(rng.bytes(int(rng.integers(1, 9))))
        try:
            list(data.read(db))  # some of the damage is to pages out of use, or to values
        except CheckError as error:
            told = str(error)
        else:
            told = db
        assert db in told
        assert not lmdb_read._environments

    def test_blank_pages(self, db):
        path = os.path.join(db, "data.mdb")
        page = lmdb.open(db, readonly=True)
        size = page.stat()["psize"]
        page.close()
        with open(path, "r+b") as file:
            file.seek(2 * size)
            file.write(bytes(os.path.getsize(path) - 2 * size))
        with pytest.raises(CheckError, match="MDB_CORRUPTED") as caught:
            list(data.read(db))
        assert f"LMDB '{db}'" in str(caught.value)
        assert not lmdb_read._environments

    def test_unwritten_last_pages_are_no_damage(self, tmp_path):
        path = str(tmp_path / "db")
        env = lmdb.open(path, map_size=1 << 24)
        for i in range(4):
            with env.begin(write=True) as transaction:
                transaction.put(b"%d" % i, bytes(9000))
                transaction.put(b"gone", bytes(50000))
                transaction.delete(b"gone")
        promised = (env.info()["last_pgno"] + 1) * env.stat()["psize"]
        env.close()
        assert os.path.getsize(os.path.join(path, "data.mdb")) < promised  # else this tests nothing
        assert [key for key, _ in data.read(path)] == [b"0", b"1", b"2", b"3"]

    @pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="needs permissions that bind")
    def test_no_permission_for_the_lock(self, db, caplog):
        os.remove(os.path.join(db, "lock.mdb"))
        os.chmod(db, 0o555)
        try:
            assert list(data.read(db)) == RECORDS
        finally:
            os.chmod(db, 0o755)
        assert "Trying with MDB_NOLOCK" in caplog.text


class TestSeveralOpenings:
    def test_each_has_its_place(self, db):
        first, second = data.open_cursor(db), data.open_cursor(os.path.join(db, "..", "db"))
        first.next()
        assert (first.key(), second.key()) == (b"001", b"000")
        assert len(lmdb_read._environments) == 1
        first.close()
        second.next()
        assert bytes(second.value()) == RECORDS[1][1]
        second.close()
        assert not lmdb_read._environments

    def test_a_dropped_one_is_closed(self, db):
        reading = data.read(db)
        next(reading)
        assert lmdb_read._environments
        del reading
        assert not lmdb_read._environments

    def test_a_new_database_of_the_same_name(self, db):
        old = data.open_cursor(db)
        os.rename(db, f"{db}.old")
        data.write(db, [(b"new", b"value")])
        assert list(data.read(db)) == [(b"new", b"value")]
        assert bytes(old.value()) == RECORDS[0][1]
        old.close()

    def test_what_others_write_is_seen_by_the_next(self, db):
        writer = (
            "import lmdb, sys\n"
            "env = lmdb.open(sys.argv[1], map_size=1 << 28)\n"
            "with env.begin(write=True) as transaction:\n"
            "    transaction.put(b'0001', bytes(32 << 20))\n"  # far beyond the map of the first reader's time
        )
        old = data.open_cursor(db)
        subprocess.run([sys.executable, "-c", writer, db], check=True)
        new = data.open_cursor(db)
        for cursor, expected in [(old, b"001"), (new, b"0001")]:
            cursor.next()
            assert cursor.key() == expected
            cursor.close()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
    def test_a_forked_process_opens_its_own(self, db):
        script = (
            "import os, sys\n"
            "from refcaffe import data\n"
            "cursor = data.open_cursor(sys.argv[1])\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    os._exit(len(list(data.read(sys.argv[1]))))\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 60\n"
            "cursor.next(), cursor.value(), cursor.close()\n"
        )
        subprocess.run([sys.executable, "-c", script, db], check=True)


@pytest.mark.parametrize("backend", ["berkeley", "LMDB", 7])
def test_other_backends(tmp_path, backend):
    for call in (data.open_cursor, data.create):
        with pytest.raises(CheckError) as caught:
            call(str(tmp_path / "db"), backend)
        assert caught.value.message == "Unknown database backend"


def test_backends_by_number(tmp_path):
    for backend in (caffe_pb2.DataParameter.LMDB, caffe_pb2.DataParameter.LEVELDB):
        path = str(tmp_path / str(backend))
        data.write(path, RECORDS, backend)
        assert list(data.read(path, backend)) == RECORDS


def test_an_interrupt_while_a_database_is_opened_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(path, **options):
        open_environment(path, **options).close()
        raise KeyboardInterrupt

    open_environment = lmdb.open
    monkeypatch.setattr(lmdb, "open", interrupted)
    with pytest.raises(KeyboardInterrupt):
        data.create(str(tmp_path / "db"))
    assert not list(tmp_path.iterdir())
