"""DataReader, and the Data layer of its time: who gets which record, who waits, and how it ends."""

import gc
import threading
import time
import weakref
from contextlib import suppress

import numpy as np
import pytest
from data_room_running import Running, at_rest, records, value
from hypothesis import given, settings
from hypothesis import strategies as st

from refcaffe import context, data
from refcaffe.checks import CheckError
from refcaffe.data import DataReader, reader
from refcaffe.data.queue import QueueClosed
from refcaffe.layers.data import Data
from refcaffe.proto import caffe_pb2, io

SURPLUS = "Check failed: new_queue_pairs_.size() == 0 (1 vs. 0)"


@pytest.fixture(autouse=True)
def one_solver():
    yield
    here = context.current()
    here.solver_count, here.solver_rank = 1, 0


@pytest.fixture
def reader_era():
    with context.build(reader_era=True):
        yield


def param(source, batch_size=2, prefetch=2, phase="TRAIN", name="data", backend="LMDB"):
    text = (
        f'name: "{name}" type: "Data" phase: {phase} '
        f'data_param {{ source: "{source}" backend: {backend} batch_size: {batch_size} prefetch: {prefetch} }}'
    )
    return io.parse_text(text, caffe_pb2.LayerParameter, "layer")


def taken(one, count):
    """The labels of the next records, each given back at once."""
    labels = []
    for _ in range(count):
        datum = one.full.pop()
        labels.append(datum.label)
        one.free.push(datum)
    return labels


class TestDealingOut:
    @given(st.integers(1, 4), st.integers(1, 7), st.integers(1, 3), st.integers(1, 3))
    @settings(max_examples=20, deadline=None)
    def test_record_by_record_in_turn(self, tmp_path_factory, solvers, count, batch_size, prefetch):
        path = str(tmp_path_factory.mktemp("reader") / "db")
        data.write(path, records(count))
        context.current().solver_count = solvers
        readers = [DataReader(param(path, batch_size, prefetch)) for _ in range(solvers)]
        assert reader.bodies() == 1
        dealt = [(i % count) for i in range(solvers * 9)]
        parts = [[] for _ in readers]
        for _ in range(9):
            for part, one in zip(parts, readers, strict=True):
                part += taken(one, 1)
        assert parts == [dealt[i::solvers] for i in range(solvers)]
        for one in readers:
            one.close()
        assert reader.bodies() == 0

    def test_queues_are_of_records(self, db):
        one = DataReader(param(db, batch_size=3, prefetch=2))
        assert at_rest(one.full, 6)
        held = [one.full.pop() for _ in range(4)]
        assert [datum.label for datum in held] == [0, 1, 2, 3]
        assert str(held[3]) == f"record 3 of '{db}', key '00000003'"
        assert (one.free.size(), one.full.size()) == (0, 2)
        one.free.push(held[0])
        assert at_rest(one.full, 3)
        assert held[0].label == 6 % 5  # filled anew
        one.close()

    def test_waits_for_all_solvers(self, db):
        context.current().solver_count = 2
        first = DataReader(param(db))
        assert at_rest(first.full, 1)
        time.sleep(0.05)
        assert (first.full.size(), first.full.peek().label) == (1, 0)
        second = DataReader(param(db))
        assert at_rest(first.full, 4)
        assert [taken(second, 2), taken(first, 2)] == [[1, 3], [0, 2]]
        first.close()
        second.close()

    def test_one_that_does_not_consume_starves_the_other(self, db):
        context.current().solver_count = 2
        first, second = (DataReader(param(db, 1, 2)) for _ in range(2))
        assert taken(second, 2) == [1, 3]
        time.sleep(0.05)
        assert second.full.try_pop() is None
        assert taken(first, 1) == [0]
        assert taken(second, 1) == [0]
        first.close()
        second.close()

    def test_a_deleted_reader_holds_up_the_other(self, db):
        context.current().solver_count = 2
        first, second = (DataReader(param(db, 1, 2)) for _ in range(2))
        first.close()
        assert taken(second, 2) == [1, 3]
        time.sleep(0.05)
        assert second.full.try_pop() is None
        second.close()

    @pytest.mark.parametrize("solvers", [1, 3])
    def test_in_test_one_reader(self, db, solvers):
        context.current().solver_count = solvers
        one = DataReader(param(db, phase="TEST"))
        assert taken(one, 12) == [0, 1, 2, 3, 4] * 2 + [0, 1]
        one.close()

    def test_only_a_new_body_draws(self, db):
        here = context.current()
        here.solver_count = 2
        readers = [DataReader(param(db)), DataReader(param(db)), DataReader(param(db, name="other"))]
        assert here.stream.draws == 2
        assert reader.bodies() == 2
        for one in readers:
            one.close()

    def test_leveldb_is_opened_once_for_all(self, tmp_path):
        path = str(tmp_path / "db")
        data.write(path, records(4), "leveldb")
        context.current().solver_count = 2
        readers = [DataReader(param(path, backend="LEVELDB")) for _ in range(2)]
        assert [taken(one, 3) for one in readers] == [[0, 2, 0], [1, 3, 1]]
        for one in readers:
            one.close()


class TestErrors:
    def test_one_reader_too_many(self, db):
        first = DataReader(param(db))
        assert at_rest(first.full, 4)
        second = DataReader(param(db, phase="TEST"))
        time.sleep(0.05)
        assert first.error is None
        taken(first, 1)
        with pytest.raises(CheckError) as caught:
            second.full.pop()
        assert caught.value.message.rstrip() == SURPLUS
        with pytest.raises(CheckError):
            taken(first, 9)
        again = DataReader(param(db))  # what failed does not stand in the way
        assert taken(again, 2) == [0, 1]
        for one in (first, second, again):
            one.close()

    def test_set_up_does_not_wait_for_what_never_comes(self, db, reader_era):
        with Running(db) as running:
            assert at_rest(running.layer.reader.full, 8)
            with pytest.raises(CheckError) as caught:
                Running(db, phase="TEST")
            assert caught.value.message.rstrip() == SURPLUS
            assert running.forward() == [0, 1]

    @pytest.mark.parametrize("options", [{"prefetch": 0}, {"batch_size": 0}])
    def test_queues_without_length(self, db, reader_era, options):
        with pytest.raises(CheckError, match="wait forever"):
            Running(db, **options)

    def test_no_database(self, tmp_path):
        one = DataReader(param(str(tmp_path / "db")))
        with pytest.raises(CheckError, match=r"mdb_status == 0 \(2 vs. 0\)") as caught:
            one.full.peek()
        assert f"reading thread of 'data:{tmp_path / 'db'}'" in str(caught.value)
        one.close()

    def test_a_record_that_does_not_fit(self, tmp_path, reader_era):
        path = str(tmp_path / "db")
        data.write(path, records(10, {7: value(7, (1, 2, 5))}))
        with Running(path, batch_size=3) as running:
            assert [running.forward() for _ in range(2)] == [[0, 1, 2], [3, 4, 5]]
            with pytest.raises(CheckError, match=r"datum_width == width \(5 vs. 3\)") as caught:
                running.forward()
            assert f"record 7 of '{path}', key '00000007'" in str(caught.value)
            assert "prefetch thread of layer 'records'" in str(caught.value)

    def test_damage_in_the_middle(self, tmp_path, reader_era):
        path = str(tmp_path / "db")
        data.write(path, records(300))
        with open(f"{path}/data.mdb", "r+b") as file:
            pages = file.read()
            leaves = [at for at in range(2 * 4096, len(pages), 4096) if pages[at + 10] == 2]
            file.seek(leaves[-1])
            file.write(bytes(4096))
        with Running(path, batch_size=400) as running, pytest.raises(CheckError, match="MDB_CORRUPTED") as caught:
            running.forward()
        assert "behind record" in str(caught.value)


class TestTheLayerOfItsTime:
    @pytest.mark.parametrize("prefetch", [1, 5])
    def test_three_batches_and_a_copy(self, db, reader_era, prefetch):
        with Running(db, batch_size=3, prefetch=prefetch) as running:
            prefetcher, one = running.layer.prefetcher, running.layer.reader
            memories = set()
            for wanted in ([0, 1, 2], [3, 4, 0], [1, 2, 3]):
                assert at_rest(prefetcher.full, 3)
                assert at_rest(one.full, 3 * prefetch)
                assert running.forward() == wanted
                memories.add(running.tops[0].cpu_data().ctypes.data)
            assert len(memories) == 1
            assert memories.isdisjoint(batch.data.cpu_data().ctypes.data for batch in prefetcher.batches)

    @pytest.mark.parametrize(("transform", "words"), [("", 2), ("crop_size: 2", 4), ("mirror: true", 4)])
    def test_words_taken_at_set_up(self, db, reader_era, transform, words):
        with Running(db, transform=transform):
            assert context.current().stream.draws == words

    def test_solvers_share_a_body(self, db, reader_era):
        here = context.current()
        here.solver_count = 2
        with Running(db) as first:
            here.solver_rank = 1
            with Running(db) as second:
                assert [first.forward(), second.forward(), first.forward()] == [[0, 2], [1, 3], [4, 1]]


class TestTheEnd:
    def test_close_is_quick_and_wakes_who_waits(self, db):
        context.current().solver_count = 2
        one = DataReader(param(db))
        taken(one, 1)
        ended = []

        def wait():
            with suppress(QueueClosed):
                one.full.pop()
            ended.append(True)

        waiting = threading.Thread(target=wait)
        waiting.start()
        started = time.monotonic()
        one.close()
        one.close()
        waiting.join(1)
        assert ended == [True]
        assert time.monotonic() - started < 1

    def test_a_layer_that_waits_for_records_is_closed_quickly(self, db, reader_era):
        context.current().solver_count = 2
        layers = [Running(db) for _ in range(2)]
        layers[1].layer.close()
        for _ in range(12):  # until the other one starves
            if not layers[0].layer.prefetcher.full.size():
                time.sleep(0.02)
            if layers[0].layer.prefetcher.full.size():
                layers[0].forward()
        started = time.monotonic()
        layers[0].layer.close()
        assert time.monotonic() - started < 1
        assert reader.bodies() == 0

    @pytest.mark.parametrize("in_a_cycle", [False, True])
    def test_a_dropped_reader(self, db, in_a_cycle):
        one = DataReader(param(db))
        if in_a_cycle:
            one.itself = one
        gone = weakref.ref(one)
        del one
        gc.collect()
        assert gone() is None
        assert reader.bodies() == 0

    def test_a_dropped_layer(self, db, reader_era):
        layer = Running(db).layer
        gone = weakref.ref(layer)
        del layer
        gc.collect()
        assert gone() is None

    def test_close_without_set_up(self, db, reader_era):
        layer = Data(param(db))
        assert reader.bodies() == 1
        layer.close()
        assert reader.bodies() == 0

    def test_a_record_outlives_its_reader(self, db):
        one = DataReader(param(db))
        datum = one.full.pop()
        one.close()
        gc.collect()
        assert np.array_equal(datum.pixels(), np.zeros((1, 2, 3), np.uint8))
