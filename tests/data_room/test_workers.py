"""Work on images by several threads: in order where that shows."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refcaffe.data import num_workers, set_num_workers, workers

COUNTS = [1, 2, 5]


@pytest.fixture(params=COUNTS, ids=lambda count: f"workers-{count}")
def several(request):
    before = num_workers()
    set_num_workers(request.param)
    yield request.param
    set_num_workers(before)


class Broken(Exception):
    pass


def work(job):
    time.sleep(job % 3 / 1000)
    if job < 0:
        raise Broken(job)
    return job * job


def test_every_job_is_done_once(several):
    done = []
    workers.for_each(range(50), done.append)
    assert sorted(done) == list(range(50))


def test_no_jobs(several):
    workers.for_each([], work)
    assert list(workers.in_advance([], work)) == []


@pytest.mark.parametrize("count", COUNTS)
@given(st.lists(st.integers(-30, 100), max_size=30))
def test_the_first_that_fails_is_told_and_all_before_it_are_done(count, jobs):
    before = num_workers()
    set_num_workers(count)
    done = []

    def note(job):
        work(job)
        done.append(job)

    failing = next((job for job in jobs if job < 0), None)
    try:
        if failing is None:
            workers.for_each(jobs, note)
        else:
            with pytest.raises(Broken) as told:
                workers.for_each(jobs, note)
            assert told.value.args == (failing,)
            assert set(jobs[: jobs.index(failing)]) <= set(done)
    finally:
        set_num_workers(before)


def test_jobs_behind_a_failed_one_are_no_longer_planned(several):
    planned = []

    def plan():
        for job in [-1, *range(1000)]:
            planned.append(job)
            yield job

    with pytest.raises(Broken):
        workers.for_each(plan(), work)
    assert len(planned) < 100


@pytest.mark.parametrize("job", [-1, 1])
def test_a_plan_that_fails_comes_after_the_jobs_before(several, job):
    def plan():
        yield job
        raise LookupError

    with pytest.raises(Broken if job < 0 else LookupError):
        workers.for_each(plan(), work)


def test_results_in_advance_are_in_order(several):
    assert list(workers.in_advance(range(40), work)) == [job * job for job in range(40)]


def test_an_error_in_advance_comes_in_its_turn(several):
    results = workers.in_advance([1, 2, -1, 3], work)
    assert [next(results), next(results)] == [1, 4]
    with pytest.raises(Broken):
        next(results)
    assert list(results) == []


def test_who_does_not_want_the_rest_leaves_no_thread(several):
    before = threading.active_count()
    results = workers.in_advance(range(1000), work)
    assert next(results) == 0
    results.close()
    assert threading.active_count() == before


def test_not_much_is_done_in_advance(several):
    taken = []

    def items():
        for item in range(1000):
            taken.append(item)
            yield item

    results = workers.in_advance(items(), work)
    next(results)
    assert len(taken) <= 8 * several
    results.close()


def test_a_job_that_is_taken_at_once_is_done(monkeypatch):
    done = []
    shared = workers._Shared(done.append)
    jobs = shared._jobs

    class TakenAtOnce:
        get = jobs.get

        def put(self, job):
            jobs.put(job)
            shared.run_one()

    monkeypatch.setattr(shared, "_jobs", TakenAtOnce())
    shared.add("job")
    assert done == ["job"]
