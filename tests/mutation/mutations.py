"""The planted errors: small edits of refcaffe's source, each with recorded cases that must not pass then.

An edit names text that is there exactly once. Where that text has gone, the test says so: then the error is to be
planted anew, in whatever has taken its place.
"""

from __future__ import annotations

from typing import NamedTuple


class Mutation(NamedTuple):
    """``edits``: (old, new) pairs in ``file``, a path in the package; ``cases``: ids of which every one must fail."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    cases: tuple[str, ...]


def planted(name: str, file: str, old: str, new: str, *cases: str) -> Mutation:
    return Mutation(name, file, ((old, new),), cases)


MUTATIONS = [
    # --- memory
    planted(
        "missing zero fill",
        "syncedmem.py",
        "self._runtime.host_alloc(self.size, pinned, clear)",
        "self._runtime.host_alloc(self.size, pinned, False)",
        "syncedmem/exhaustive/master-cpu-mode",
    ),
    planted(
        "missing head change",
        "syncedmem.py",
        "memory = self.cpu_data()\n        self.head = Head.HEAD_AT_CPU",
        "memory = self.cpu_data()",
        "syncedmem/machine/master-gpu-mode",
        "blob/access/heads",
    ),
    planted(
        "memory freed on the device that is current",
        "syncedmem.py",
        "self._runtime.set_device(self._gpu_device)",
        "self._runtime.set_device(here)",
        "syncedmem/devices/reader",
    ),
    planted(
        "host memory freed as the present mode says",
        "syncedmem.py",
        "self._runtime.host_free(self._cpu, self._pinned)",
        "self._runtime.host_free(self._cpu, context.current().mode is Mode.GPU)",
        "syncedmem/mode-switch/master",
    ),
    planted(
        "memory made anew for every other count",
        "blob.py",
        "if count > self._capacity:",
        "if count != self._capacity:",
        "blob/reshape/capacity",
    ),
    planted(
        "a synced blob is updated on the host",
        "blob.py",
        'if memory.head is Head.HEAD_AT_CPU:\n            return "cpu"',
        'if memory.head is not Head.HEAD_AT_GPU:\n            return "cpu"',
        "blob/update/cpu-mode",
        "blob/update/gpu-mode",
    ),
    # --- random numbers
    planted(
        "uniform numbers in double precision, rounded once",
        "rng/stream.py",
        "x = words.astype(real)",
        "x = words.astype(np.float64)",
        "rng/uniform/float-0",
    ),
    planted(
        "the upper end of uniform numbers left out",
        "rng/stream.py",
        "high = nextafter(high)",
        "high = real(high)",
        "rng/uniform/float-0",
        "rng/uniform/double-0",
    ),
    planted(
        "shuffle by the low bits",
        "rng/stream.py",
        "self.ahead(i.size) // ((1 << 32) // (i + 1))",
        "self.ahead(i.size) % (i + 1)",
        "rng/shuffle/lengths",
    ),
    planted(
        "fan-in and fan-out swapped",
        "fillers.py",
        "fan_out if param.variance_norm == _FAN_OUT else fan_in",
        "fan_in if param.variance_norm == _FAN_OUT else fan_out",
        "filler/xavier/fan-in-2d",
        "filler/msra/fan-out-4d",
    ),
    planted(
        "bilinear kernel of odd size off centre",
        "fillers.py",
        "factor = (width + 1) // 2",
        "factor = width // 2",
        "filler/bilinear/k3",
    ),
    planted(
        "sparse by the number of inputs",
        "fillers.py",
        "real(param.sparse) / real(blob.shape[0])",
        "real(param.sparse) / real(blob.shape[-1])",
        "filler/gaussian/sparse",
    ),
    # --- layers
    planted(
        "the last of equal maxima",
        "kernels/pooling.py",
        "higher = value > highest  # the first",
        "higher = value >= highest  # the first",
        "layer/pooling/max-ties",
    ),
    planted(
        "average over the whole kernel",
        "kernels/pooling.py",
        "np.minimum(start + k, length + p) - start",
        "np.full(n, k)",
        "layer/pooling/ave-k3-s2-p1",
        "layer/pooling/ave-pad-ceil",
    ),
    planted(
        "floor for ceil",
        "layers/pooling.py",
        "np.floor if down else np.ceil",
        "np.floor if down else np.floor",
        "layer/pooling/max-k3-s2-ceil-edge",
        "layer/pooling/ave-k3-s2-ceil-edge",
    ),
    planted(
        "a last window that sees padding alone",
        "layers/pooling.py",
        "count -= 1",
        "count -= 0",
        "layer/pooling/max-clipped-last-window",
    ),
    planted(
        "off-by-one crop",
        "layers/crop.py",
        "slice(offset, offset + shape[i])",
        "slice(max(offset - 1, 0), max(offset - 1, 0) + shape[i])",
        "layer/crop/offsets",
        "layer/crop/one-offset",
    ),
    planted(
        "dropout does not scale",
        "layers/dropout.py",
        "self.dtype.type(1 / self.keep if self.keep else np.inf)",
        "self.dtype.type(1)",
        "layer/dropout/train",
    ),
    planted(
        "variance without the correction for its bias",
        "layers/batch_norm.py",
        "real(values) / real(values - 1) if values > 1 else real(1)",
        "real(1)",
        "layer/batch_norm/train",
    ),
    planted(
        "clip from below first",
        "layers/clip.py",
        "choose(y > self.min, y, self.min, y)",
        "choose(y < self.min, self.min, y, y)",
        "layer/clip/non-finite",
    ),
    planted(
        "LRN over two channels fewer",
        "kernels/lrn.py",
        "size // 2, k, alpha, scale)",
        "size // 2 - 1, k, alpha, scale)",
        "layer/lrn/default",
        "layer/lrn/size-3",
    ),
    planted(
        "label off by one",
        "layers/softmax_with_loss.py",
        "labels = labels[i, j]",
        "labels = (labels[i, j] + 1) % self.planes[1]",
        "layer/softmax_with_loss/2d",
        "layer/softmax_with_loss/4d",
    ),
    planted(
        "a loss divided by nothing at all",
        "layers/normalization_mode.py",
        "max(1, divisors[self.mode])",
        "divisors[self.mode]",
        "layer/softmax_with_loss/all-ignored",
    ),
    planted(
        "of two equal ones the first",
        "layers/eltwise.py",
        "first = a > b",
        "first = a >= b",
        "layer/eltwise/max-ties",
    ),
    Mutation(
        "of equal scores the lower index",
        "layers/argmax.py",
        (("reverse = x[:, ::-1]", "reverse = x"), ("return x.shape[1] - 1 - order", "return order")),
        ("layer/argmax/all-equal",),
    ),
    planted(
        "ties count for the label",
        "layers/accuracy.py",
        "better = scores >= ",
        "better = scores > ",
        "layer/accuracy/ties",
    ),
    planted(
        "Reshape does not share its diff",
        "layers/reshape.py",
        "top[0].share_diff(x)",
        "top[0].diff_memory()",
        "layer/reshape/explicit",
    ),
    planted(
        "input and output gate swapped",
        "layers/lstm_unit.py",
        "return _sigmoid(xp, parts[:, 0]), f, _sigmoid(xp, parts[:, 2])",
        "return _sigmoid(xp, parts[:, 2]), f, _sigmoid(xp, parts[:, 0])",
        "layer/lstm_unit/binary",
        "layer/lstm/given",
    ),
    # --- nets
    planted(
        "uses of a split in reverse order",
        "net/splits.py",
        "as_text(name), top[1], next_use[top])",
        "as_text(name), top[1], uses[top] - 1 - next_use[top])",
        "net/structure/split-label",
    ),
    planted(
        "loss weight on the last top of a split",
        "net/splits.py",
        "weight if use == 0 else 0",
        "weight if use == uses - 1 else 0",
        "net/structure/split-loss-weight",
    ),
    planted(
        "min_level above",
        "net/filter.py",
        "state.level < rule.min_level",
        "state.level <= rule.min_level",
        "net/structure/filter-level",
    ),
    planted(
        "BatchNorm's statistics decay",
        "proto/upgrade.py",
        "spec.decay_mult = 0",
        "spec.decay_mult = 1",
        "upgrade/batch-norm/three",
    ),
    # --- solvers
    planted(
        "a part of a step",
        "solvers/policies.py",
        "solver.iter // solver.param.stepsize",
        "solver.iter / solver.param.stepsize",
        "solver/policy/step",
    ),
    planted(
        "momentum on the new gradient, too",
        "solvers/sgd.py",
        "axpby(local_rate, gradient, momentum, history)",
        "axpy(local_rate, gradient, history), scal(momentum, history)",
        "solver/update/sgd-plain",
    ),
    planted(
        "update without fused operations",
        "kernels/blas.py",
        "fused = x.size // 32 * 32",
        "fused = x.size // 32 * 0",
        "solver/lenet/sgd",
    ),
    planted(
        "Nesterov's two histories swapped",
        "solvers/nesterov.py",
        "axpby(1 + momentum, history, -momentum, gradient)",
        "axpby(-momentum, history, 1 + momentum, gradient)",
        "solver/update/nesterov-plain",
    ),
    planted(
        "Adam counts iterations from 0",
        "solvers/adam.py",
        "t = self.iter + 1",
        "t = max(self.iter, 1)",
        "solver/update/adam-plain",
    ),
    Mutation(
        "gradients clipped after weight decay",
        "solvers/sgd.py",
        (
            ("        self._clip_gradients()\n        side =", "        side ="),
            ("        self.net.update()\n", "        self._clip_gradients()\n        self.net.update()\n"),
        ),
        ("solver/clip/active",),
    ),
    planted(
        "the window of the average loss does not restart",
        "solvers/solver.py",
        "i = (self.iter - start) % window",
        "i = self.iter % window",
        "solver/average-loss/restarts",
    ),
    # --- data
    planted(
        "mean after scale",
        "kernels/transform.py",
        "to[x] = (row[x] - less) * scale",
        "to[x] = row[x] * scale - less",
        "transform/datum/mean-then-scale",
    ),
    planted(
        "centre crop rounded up",
        "data/transformer.py",
        "spare_h // 2, spare_w // 2",
        "(spare_h + 1) // 2, (spare_w + 1) // 2",
        "transform/datum/crop-center-odd",
    ),
    planted(
        "width offset drawn before the height's",
        "data/transformer.py",
        "rand(spare_h + 1), rand(spare_w + 1)",
        "*(rand(spare_w + 1), rand(spare_h + 1))[::-1]",
        "transform/seq/crop-train",
        "data/db/crop-train",
    ),
    Mutation(
        "mirrored upside down",
        "kernels/transform.py",
        (
            ("row[width - np.uintp(1) - x] - less)", "row[x] - less)"),
            (
                "out[c, y]\n            if mirror:",
                "out[c, out.shape[1] - 1 - y if mirror else y]\n            if mirror:",
            ),
        ),
        ("transform/seq/mirror-train", "data/db/mirror-test"),
    ),
    planted(
        "channels in the order R, G, B",
        "kernels/transform.py",
        "b, g, r = (",
        "r, g, b = (",
        "transform/mat/bgr-identity",
    ),
    planted(
        "a thread's stream is not seeded by its starter's",
        "context.py",
        "inherited.set_random_seed(here.stream.raw())",
        "inherited.set_random_seed(here.stream.peek())",
        "data/db/after-a-filler",
    ),
    planted(
        "every solver reads the same records",
        "data/records.py",
        "while self._running % self.count != self.rank:",
        "while self._running % self.count:",
        "reader/solvers/skip-2",
    ),
    planted(
        "the device's side of a batch taken for reading",
        "layers/base_data.py",
        "blob.set_gpu_data(memory.mutable_gpu_data())",
        "blob.set_gpu_data(memory.gpu_data())",
        "gpumode/net/lenet-data-train",
    ),
]
