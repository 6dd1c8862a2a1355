"""The operations of a case of kind ``reader``, on queues, readers or layers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from conformance.cases import Recording
from conformance.engines.pipeline import Pipeline
from conformance.outcome import Unsupported

_QUIET = 0.4  # seconds without a change after which queues are at rest
_WAITS = 0.3  # seconds after which a call that has not returned waits
_PATIENCE = 30.0  # seconds after which what should have happened will not

Op = dict[str, Any]


class _Call(threading.Thread):
    """A call that may wait, on a thread of its own."""

    def __init__(self, function: Callable[[], Any]) -> None:
        super().__init__(daemon=True, name="a call that waits")
        self._function = function
        self._result: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._result = self._function()
        except BaseException as error:  # handed to who asks for the result
            self._error = error

    def result(self) -> Any:
        self.join(_PATIENCE)
        if self.is_alive():
            raise TimeoutError("a call still waits that should have returned")
        if self._error is not None:
            raise self._error
        return self._result


class _Run:
    """Plays operations by their names: ``op_<name>`` gives what is recorded beside the name."""

    def __init__(self, caffe: Pipeline, ops: Sequence[Op]) -> None:
        self.caffe, self.ops = caffe, ops
        self.parts: dict[str, Any] = {}
        self.results: list[Op] = []
        self.got = Recording({"results": self.results})

    def run(self, asynchronous: bool) -> None:
        """All operations; then what a thread failed with, which is waited for if one did in the recording."""
        for op in self.ops:
            operation = getattr(self, f"op_{op['op']}", None)
            if operation is None:
                raise Unsupported(f"the suite has no operation {op['op']!r}")
            self.results.append({"op": op["op"], **(operation(op) or {})})
        end = time.monotonic() + (_PATIENCE if asynchronous else 0)
        while True:
            for part in self.parts.values():
                error = self.caffe.failure(part)
                if error is not None:
                    raise error
            if time.monotonic() >= end:
                return
            time.sleep(0.01)

    def close(self) -> None:
        for part in self.parts.values():
            part.close()

    def _sizes(self) -> dict[str, list[int]]:
        return {name: self.caffe.sizes(part) for name, part in self.parts.items()}

    def op_rest(self, op: Op) -> Op:
        sizes, since = self._sizes(), time.monotonic()
        while time.monotonic() - since < _QUIET:
            time.sleep(0.01)
            now = self._sizes()
            if now != sizes:
                sizes, since = now, time.monotonic()
        return {"sizes": sizes}

    def _delete(self, op: Op) -> None:
        self.parts.pop(op["id"]).close()

    def _global_next(self) -> int:
        return self.caffe.words_ahead(1)[0]


class QueueRun(_Run):
    """One BlockingQueue."""

    def __init__(self, caffe: Pipeline, ops: Sequence[Op]) -> None:
        super().__init__(caffe, ops)
        self._queue = caffe.queue()

    def close(self) -> None:
        self._queue.close()  # whoever still waits there need not

    def op_push(self, op: Op) -> None:
        self._queue.push(op["value"])

    def op_pop(self, op: Op) -> Op:
        return {"value": _Call(self._queue.pop).result()}

    def op_peek(self, op: Op) -> Op:
        return {"value": _Call(self._queue.peek).result()}

    def op_size(self, op: Op) -> Op:
        return {"value": self._queue.size()}

    def op_try_pop(self, op: Op) -> Op:
        return self._tried(self._queue.try_pop, op)

    def op_try_peek(self, op: Op) -> Op:
        return self._tried(self._queue.try_peek, op)

    @staticmethod
    def _tried(form: Callable[[Any], Any], op: Op) -> Op:
        nothing = object()
        value = form(nothing)
        ok = value is not nothing
        return {"ok": ok, "value": value if ok else op.get("before", -1)}

    def op_waiting(self, op: Op) -> Op:
        calls = [_Call(getattr(self._queue, form)) for form in op["threads"]]
        time.sleep(_WAITS)
        waited = [call.is_alive() for call in calls]
        for value in op["push"]:
            self._queue.push(value)
        return {"waited": waited, "values": sorted(call.result() for call in calls), "size": self._queue.size()}


class ReadersRun(_Run):
    """DataReaders, with a list of held datums for each."""

    def __init__(self, caffe: Pipeline, ops: Sequence[Op]) -> None:
        super().__init__(caffe, ops)
        self._held: dict[str, list[Any]] = {}

    def op_set_solver_count(self, op: Op) -> None:
        self.caffe.set_solver(op["n"], None)

    def op_new(self, op: Op) -> Op:
        def make() -> Any:
            return self.caffe.data_reader(op["param"])

        count = op.get("thread_solver_count")
        self.parts[op["id"]] = make() if count is None else self.caffe.on_other_thread(count, make)
        self._held[op["id"]] = []
        return {"bodies": self.caffe.bodies(), "global_next": self._global_next()}

    def op_delete(self, op: Op) -> Op:
        self._delete(op)
        return {"bodies": self.caffe.bodies()}

    def _labels(self, op: Op, form: str) -> Op:
        full = self.parts[op["id"]].full
        labels: list[int | None] = []
        for _ in range(op.get("times", 1)):
            call = getattr(full, form)
            datum = call() if form.startswith("try_") else _Call(call).result()
            labels.append(None if datum is None else datum.label)
            if datum is not None and form.endswith("pop"):
                self._held[op["id"]].append(datum)
        return {"labels": labels}

    def op_pop(self, op: Op) -> Op:
        return self._labels(op, "pop")

    def op_peek(self, op: Op) -> Op:
        return self._labels(op, "peek")

    def op_try_pop(self, op: Op) -> Op:
        return self._labels(op, "try_pop")

    def op_try_peek(self, op: Op) -> Op:
        return self._labels(op, "try_peek")

    def op_give(self, op: Op) -> None:
        for _ in range(op.get("times", 1)):
            self.parts[op["id"]].free.push(self._held[op["id"]].pop(0))

    def op_consume(self, op: Op) -> Op:
        def consume(reader: Any, count: int) -> list[int]:
            labels = []
            for _ in range(count):
                datum = reader.full.pop()
                labels.append(datum.label)
                reader.free.push(datum)
            return labels

        calls = {
            name: _Call(lambda name=name, count=count: consume(self.parts[name], count))  # type: ignore[misc]
            for name, count in op["counts"].items()
        }
        return {"labels": {name: call.result() for name, call in calls.items()}}


class LayersRun(_Run):
    """Data layers without a net."""

    def __init__(self, caffe: Pipeline, ops: Sequence[Op]) -> None:
        super().__init__(caffe, ops)
        self._tops: dict[str, list[Any]] = {}
        self._seen: dict[str, list[int]] = {}

    def op_set_solver(self, op: Op) -> None:
        self.caffe.set_solver(op["count"], op["rank"])

    def op_new(self, op: Op) -> Op:
        self.parts[op["id"]] = self.caffe.layer(op["param"])
        self._tops[op["id"]] = [self.caffe.blob(None), self.caffe.blob(None)]
        self._seen[op["id"]] = []
        return {"global_next": self._global_next()}

    def op_setup(self, op: Op) -> Op:
        tops = self._tops[op["id"]]
        self.parts[op["id"]].set_up([], tops)
        return {"global_next": self._global_next(), "shape": list(tops[0].shape)}

    def op_forward(self, op: Op) -> Op:
        data, label = self._tops[op["id"]]
        seen = self._seen[op["id"]]
        labels, shapes, buffers = [], [], []
        for _ in range(op.get("times", 1)):
            self.parts[op["id"]].forward([], [data, label])
            place = self.caffe.place_of(data)
            if place not in seen:
                seen.append(place)
            buffers.append(seen.index(place))
            labels.append([int(value) for value in label.data.reshape(-1)])
            shapes.append(list(data.shape))
        alike = all(shape == shapes[0] for shape in shapes)
        return {"labels": labels, "shapes": shapes[0], "buffers": buffers} if alike else {
            "labels": labels, "shapes": shapes,
        }  # fmt: skip

    def op_delete(self, op: Op) -> None:
        self._delete(op)
