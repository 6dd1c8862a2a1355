"""The Data layer on real databases and with real threads."""

import threading

import numpy as np
import pytest
from data_room_running import SHAPE, Running, at_rest, image

from refcaffe import context, data, device


@pytest.mark.parametrize("prefetch", [1, 2, 4, 7])
def test_wraps_in_the_middle_of_a_batch(db, prefetch):
    with Running(db, batch_size=3, prefetch=prefetch) as running:
        assert [running.forward() for _ in range(6)] == [
            [0, 1, 2], [3, 4, 0], [1, 2, 3], [4, 0, 1], [2, 3, 4], [0, 1, 2],
        ]  # fmt: skip


def test_a_batch_larger_than_the_database(db):
    with Running(db, batch_size=12) as running:
        assert running.forward() == [0, 1, 2, 3, 4] * 2 + [0, 1]


def test_queues_and_memory_go_round(db):
    with Running(db, prefetch=3) as running:
        prefetcher = running.layer.prefetcher
        assert at_rest(prefetcher.full, 3)
        seen = []
        for _ in range(7):
            running.forward()
            memory = running.tops[0].data_memory().cpu_data()
            assert memory is not None
            seen.append(id(memory))
            assert at_rest(prefetcher.full, 2)
            assert prefetcher.free.size() == 0
        assert len(set(seen)) == 3
        assert seen[:4] == seen[3:7]


def test_set_up_logs_and_shapes(db, caplog):
    caplog.set_level("INFO", "refcaffe.data_layer.cpp")
    with Running(db, batch_size=4, tops=1) as running:
        assert running.tops[0].shape == (4, *SHAPE)
        assert "output data size: 4,1,2,3" in caplog.messages
        running.layer.forward([], running.tops)
        assert running.tops[0].cpu_data()[:, 0, 0, 0].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(("transform", "words"), [("", 1), ("crop_size: 2", 3), ("mirror: true", 3)])
def test_words_taken_at_set_up(db, transform, words):
    with Running(db, transform=transform) as running:
        for _ in range(3):
            running.forward()
        assert context.current().stream.draws == words


def test_labels_are_floats(tmp_path):
    labels = [-(2**31), -3, 16777217, 2**31 - 1]
    path = str(tmp_path / "db")
    data.write(path, [(b"%d" % i, data.serialize(image(0), label)) for i, label in enumerate(labels)])
    for dtype in (np.float32, np.float64):
        with Running(path, batch_size=4, dtype=dtype) as running:
            running.layer.forward([], running.tops)
            assert running.tops[1].cpu_data().tolist() == np.array(labels, dtype).tolist()


@pytest.mark.parametrize("count", [2, 3])
def test_solvers_share_the_records(db, count):
    context.current().solver_count = count
    try:
        for rank in range(count):
            context.current().solver_rank = rank
            with Running(db) as training, Running(db, phase="TEST") as testing:
                mine = [i % 5 for i in range(count * 12) if i % count == rank]
                assert [label for _ in range(6) for label in training.forward()] == mine
                assert testing.forward() == [0, 1]
    finally:
        context.current().solver_count, context.current().solver_rank = 1, 0


def test_two_layers_and_many_nets_on_one_database(db):
    with Running(db) as one, Running(db, batch_size=3) as other:
        assert [one.forward(), other.forward(), one.forward()] == [[0, 1], [0, 1, 2], [2, 3]]
        for _ in range(50):
            with Running(db) as short:
                assert short.forward() == [0, 1]
        assert [one.forward(), other.forward()] == [[4, 0], [3, 4, 0]]


@pytest.mark.parametrize("tops", [1, 2])
def test_gpu_mode_copies_nothing_on_the_main_thread(db, tops):
    here, copies = context.current(), []
    with device.use("fake") as fake:
        here.mode = context.Mode.GPU
        try:
            with Running(db, tops=tops) as running:
                assert at_rest(running.layer.prefetcher.full, 4)
                main = threading.get_ident()
                fake.record = lambda event: copies.append((threading.get_ident() == main, *event[:3]))
                running.layer.forward([], running.tops)
                running.layer.forward([], running.tops)
                assert at_rest(running.layer.prefetcher.full, 3)
                assert not [copy for copy in copies if copy[0]]
                sizes = [48, 8][:tops]
                assert [copy[1:] for copy in copies] == [
                    *(("memcpy", "D2H", size) for size in sizes), *(("memcpy_async", "H2D", size) for size in sizes),
                ]  # fmt: skip
                assert running.tops[0].gpu_data()[:, 0, 0, 0].tolist() == [2, 3]
        finally:
            fake.record = None
            here.mode = context.Mode.CPU
