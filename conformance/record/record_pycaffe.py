# -*- coding: utf-8 -*-
"""Record conformance cases from an original Caffe: one file, for any Python that can ``import caffe``.

    python record_pycaffe.py --out DIR CASE ...

Python 2.7 or 3.5 and newer, NumPy 1.7 and newer; nothing of refcaffe is needed. CASE is a folder with a ``case.json``
(or a folder of such folders) of kind layer, filler, net, solver, snapshot, error or data. What the case gives is done
in the order of its FORMAT page, in a process of its own; what came out is written to DIR in the same layout. Where it
is what the case already holds, its files are taken over byte by byte; ``DIR/record.json`` says which cases are the
same, which differ, and which could not be recorded here and why. ``DIR/provenance.json`` describes the Caffe.

What pycaffe does not show (a net's structure, history and losses of a solver, random words) comes from the extension
module ``caffe_inside`` (``inside.cpp``), if it can be imported; without it those cases are left out.
"""

from __future__ import print_function

import argparse
import collections
import ctypes
import hashlib
import io
import json
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
import zlib

import numpy as np

OWN_FILES = ("case.json", "given.npz", "recorded.npz", "spread.npz", "out")  # not given to the working directory
MARK = "@@at "  # a line of standard error that says which step or operation follows
SENTINEL = 0x7FC0ABCD  # a not-a-number that no computation gives: what still holds it was not written
DIGEST = 16  # values of an array that a digest keeps
PHASES = {"TRAIN": 0, "TEST": 1}
UNREACHED, DIED = "not recorded", "died"


class Unreached(Exception):
    """The case needs something that is not here. The message says what."""


# --- case folders


def plain(value):
    """JSON strings as ``str``, which Boost.Python wants under Python 2."""
    if isinstance(value, dict):
        return collections.OrderedDict((plain(key), plain(entry)) for key, entry in value.items())
    if isinstance(value, list):
        return [plain(entry) for entry in value]
    return value.encode("utf-8") if str is bytes and not isinstance(value, (str, int, float, type(None))) else value


def read_json(path):
    with io.open(path, encoding="utf-8") as stream:
        return plain(json.load(stream, object_pairs_hook=collections.OrderedDict))


def write_json(path, value):
    with io.open(path, "wb") as stream:
        stream.write(dumps(value).encode("utf-8") + b"\n")


def dumps(value, indent=0):
    """JSON with what fits on a line on one line."""
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= 110 or not isinstance(value, (dict, list)) or not value:
        return flat
    pad = "\n" + " " * (indent + 1)
    if isinstance(value, dict):
        inner = [json.dumps(key, ensure_ascii=False) + ": " + dumps(value[key], indent + 1) for key in value]
        return "{" + pad + ("," + pad).join(inner) + pad[:-1] + "}"
    if any(isinstance(entry, (dict, list)) for entry in value):
        return "[" + pad + ("," + pad).join(dumps(entry, indent + 1) for entry in value) + pad[:-1] + "]"
    lines = [""]
    for entry in value:
        text = json.dumps(entry, ensure_ascii=False)
        if lines[-1] and len(lines[-1]) + len(text) + indent > 108:
            lines.append("")
        lines[-1] += (", " if lines[-1] else "") + text
    return "[" + pad + ("," + pad).join(lines) + pad[:-1] + "]"


def read_npz(path):
    """Names in order, and arrays by name."""
    if not os.path.exists(path):
        return [], {}
    with zipfile.ZipFile(path) as archive:
        names = [entry[: -len(".npy")] for entry in archive.namelist()]
    arrays = np.load(path)
    return [str(name) for name in names], {str(name): arrays[name] for name in names}


def write_npz(path, arrays):
    """A list of (name, array) as ``numpy.savez_compressed`` writes it; by hand, since zipfile's headers changed."""
    parts, directory, offset = [], [], 0
    for name, array in arrays:
        content = io.BytesIO()
        np.lib.format.write_array(content, np.ascontiguousarray(array).reshape(np.shape(array)), version=(1, 0))
        data, file_name = content.getvalue(), (name + ".npy").encode("utf-8")
        squeeze = zlib.compressobj(-1, zlib.DEFLATED, -15)
        packed = squeeze.compress(data) + squeeze.flush()
        flag = 0 if len(file_name) == len(name) + 4 else 0x800  # names beyond ASCII
        common = struct.pack("<HHHHHLLL", 20, flag, 8, 0, 33, zlib.crc32(data) & 0xFFFFFFFF, len(packed), len(data))
        sizes = struct.pack("<HHQQ", 1, 16, len(data), len(packed))
        entry = b"PK\3\4" + common + struct.pack("<HH", len(file_name), len(sizes)) + file_name + sizes + packed
        place = struct.pack("<HHHHHLL", len(file_name), 0, 0, 0, 0, 0o600 << 16, offset)
        directory.append(b"PK\1\2" + struct.pack("<BB", 20, 3) + common + place + file_name)
        parts.append(entry)
        offset += len(entry)
    listing = b"".join(directory)
    end = struct.pack("<HHHHLLH", 0, 0, len(directory), len(directory), len(listing), offset, 0)
    with io.open(path, "wb") as stream:
        stream.write(b"".join(parts) + listing + b"PK\5\6" + end)


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def cases_below(folder):
    if os.path.exists(os.path.join(folder, "case.json")):
        return [folder]
    return sorted(at for at, _, files in os.walk(folder) if "case.json" in files)


# --- what a process said


LOG = re.compile(r"([IWEF])\d{4,8} [\d:.]+ +\d+ ([^:\]]+):\d+\] (.*)")
PARSER = re.compile(r"\[libprotobuf (\w+) [^\]]*\] (.*)")
NOISE = ("    @ ", "*** ", "PC: @ ", "WARNING: Logging before InitGoogleLogging", "[ WARN:")


def heard(text):
    """Standard error as ``log``: [at, level, file, text], ``parser``: [at, level, text], ``other`` lines."""
    log, parser, other, at, last = [], [], [], "", None
    for line in text.split("\n"):
        found = LOG.match(line)
        if line.startswith(MARK):
            at, last = line[len(MARK) :], None
        elif found:
            last = [at, found.group(1), found.group(2), found.group(3)]
            log.append(last)
        elif PARSER.match(line):
            parser.append([at] + list(PARSER.match(line).groups()))
        elif line.startswith(NOISE):
            continue
        elif last is not None:
            last[3] += "\n" + line
        elif line:
            other.append(line)
    for entry in log:
        entry[3] = entry[3].rstrip("\n")
    return log, parser, other, at


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]+", "<PTR>", text)


def without_times(text):
    return re.sub(r"\(\S+ iter/s, \S+s/(\d+) iters\)", r"(<R> iter/s, <T>s/\1 iters)", text)


# --- playing a case, in a process of its own


class Run(object):
    """One case: what it gives, and what came out so far."""

    def __init__(self, folder, results):
        import caffe

        self.caffe = caffe
        self.document = read_json(os.path.join(folder, "case.json"))
        self.given = self.document["given"]
        self.given_arrays = read_npz(os.path.join(folder, "given.npz"))[1]
        self.results = results
        self.recorded = {}
        self.arrays = []  # (name, array) in order
        self.kept = []
        self.given_files = set(files_below("."))
        self.nets, self.solvers = {}, {}
        try:
            import caffe_inside

            self._inside = caffe_inside
        except ImportError:
            self._inside = None

    @property
    def inside(self):
        if self._inside is None:
            raise Unreached("caffe_inside (inside.cpp), which shows what pycaffe does not")
        return self._inside

    def at(self, step):
        """Say on standard error, among Caffe's own lines, what comes next."""
        sys.stdout.flush()
        sys.stderr.flush()
        os.write(2, (MARK + str(step) + "\n").encode())

    def array(self, name):
        if name not in self.given_arrays:
            raise Unreached("the array %r of given.npz" % name)
        return self.given_arrays[name]

    def put(self, name, array):
        self.arrays.append((name, np.array(array)))

    def note(self, section, name, value):
        self.recorded.setdefault(section, {})[name] = value

    def save(self, **more):
        """Write what there is: later operations may end the process."""
        document = dict(more, recorded=self.recorded, kept=self.kept)
        path = os.path.join(self.results, "result.json")
        write_json(path + ".new", document)
        os.rename(path + ".new", path)  # another thread may end the process at any time

    def make_net(self, model, phase, level=0, stages=(), weights=None):
        more = {}
        if level:
            more["level"] = level
        if stages:
            more["stages"] = list(stages)
        if weights is not None:
            more["weights"] = weights
        return self.caffe.Net(model, PHASES[phase], **more)

    def play(self):
        (self.caffe.set_mode_gpu if self.document["mode"] == "GPU" else self.caffe.set_mode_cpu)()
        if "c_srand" in self.given:
            ctypes.CDLL(None).srand(self.given["c_srand"])
        {"layer": play_layer, "filler": play_filler, "data": play_data}.get(self.document["kind"], play_operations)(
            self
        )


def contents(blob, which="data"):
    """A copy; a blob without elements may have no memory to ask for."""
    return np.array(getattr(blob, which)) if blob.count else np.zeros(tuple(blob.shape), np.float32)


def place_of(blob, which):
    return getattr(blob, which).__array_interface__["data"][0] if blob.count else None


def forward(net, start=None, end=None):
    names = list(net._layer_names)
    return float(net._forward(names.index(start) if start else 0, names.index(end) if end else len(names) - 1))


def backward(net, start=None, end=None):
    names = list(net._layer_names)
    net._backward(names.index(start) if start else len(names) - 1, names.index(end) if end else 0)


def clear_param_diffs(net):
    if hasattr(net, "clear_param_diffs"):
        net.clear_param_diffs()
        return
    for blobs in net.params.values():  # before 2016 pycaffe had no name for it
        for blob in blobs:
            blob.diff[...] = 0


def play_layer(run):
    """FORMAT-layer.md."""
    given, arrays = run.given, run.given_arrays
    run.at("setup")
    if "seed" in run.document:
        run.caffe.set_random_seed(run.document["seed"])
    net = run.make_net("net.prototxt", given["phase"])
    params = list(net.params["layer"]) if "layer" in net.params else []
    last = len(net.layers) - 1
    weights = [float(net._blob_loss_weights[i]) for i in net._top_ids(last)]
    run.recorded["tops"] = {top: list(net.blobs[top].shape) for top in given["tops"]}
    if params:
        run.recorded["params"] = [list(param.shape) for param in params]
    run.recorded["loss_weights"] = weights
    for i in range(given["params"]):
        params[i].data[...] = arrays["param.%d" % i]
    if not given["params"]:
        for i, param in enumerate(params):
            run.put("setup.param.%d" % i, contents(param))
    if net.layers[last].type == "DummyData":
        for top in given["tops"]:
            run.put("setup.data." + top, contents(net.blobs[top]))
    source = {bottom["name"]: bottom["source"] for bottom in given["bottoms"]}
    untouched = [bottom["name"] for bottom in given["bottoms"]]
    for s, step in enumerate(given["steps"]):
        here = "s%d" % s
        run.at(here)
        if step == "clear_param_diffs":
            clear_param_diffs(net)
        elif step == "forward":
            for name in sorted(key[len(here) + 6 :] for key in arrays if key.startswith(here + ".data.")):
                array = arrays[here + ".data." + name]
                blob = net.params[name][0] if source.get(name) == "Parameter" else net.blobs[name]
                if tuple(blob.shape) != array.shape:
                    blob.reshape(*array.shape)
                blob.data[...] = array
            mark_untouched(run, net, source, untouched)
            before = [contents(param) for param in params]
            loss = forward(net)
            for top in given["tops"]:
                run.put("%s.data.%s" % (here, top), contents(net.blobs[top]))
            if any(weights):
                run.put(here + ".loss", np.array(loss, np.float32))
            for i, param in enumerate(params):
                if not same_bits(before[i], contents(param)):
                    run.put("%s.param.%d" % (here, i), contents(param))
        else:
            untouched = layer_backward(run, net, here, source, untouched)
            for i, param in enumerate(params):
                run.put("%s.param_diff.%d" % (here, i), contents(param, "diff"))
    if "backward" in given["steps"]:
        run.recorded["untouched"] = untouched


def mark_untouched(run, net, source, untouched):
    """Before a forward pass (which may keep something there) fill the bottoms' diffs that nobody has written."""
    tops = [place_of(net.blobs[top], "diff") for top in run.given["tops"]]
    for name in untouched:
        blob = net.blobs[name]
        # A bottom in the memory of a top (in place, or a layer that passes it on) is written with the top.
        if source[name] == "Input" and blob.count and place_of(blob, "diff") not in tops:
            blob.diff.view(np.uint32)[...] = SENTINEL


def layer_backward(run, net, here, source, untouched):
    """One backward step; the bottoms that it, and those before it, did not write."""
    left = []
    for top in run.given["tops"]:
        if "%s.diff.%s" % (here, top) in run.given_arrays:
            net.blobs[top].diff[...] = run.given_arrays["%s.diff.%s" % (here, top)]
    backward(net)
    for bottom in run.given["bottoms"]:
        name = bottom["name"]
        diff = contents(net.blobs[name], "diff")
        if name in untouched and source[name] == "Input" and np.all(diff.view(np.uint32) == SENTINEL):
            left.append(name)
        else:
            run.put("%s.diff.%s" % (here, name), diff)
    return left


def play_filler(run):
    """FORMAT-filler.md."""
    given = run.given
    run.at("setup")
    run.caffe.set_random_seed(run.document["seed"])
    net = run.make_net("net.prototxt", "TRAIN")

    def take(number):
        for i, fill in enumerate(given["fills"]):
            if not fill.get("discarded") and fill.get("forward") == number:
                blob = net.params[fill["layer"]][fill["param"]] if "layer" in fill else net.blobs[fill["blob"]]
                run.put("fill.%d" % i, contents(blob))

    take(None)
    for number in range(given["forwards"]):
        run.at("forward %d" % number)
        forward(net)
        take(number)
        for top in given["tops"]:
            run.put("forward%d.data.%s" % (number, top), contents(net.blobs[top]))


# --- operations of net, solver, snapshot and error


def files_below(folder):
    found = []
    for at, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name != "__pycache__"]
        found += [os.path.relpath(os.path.join(at, name), folder).replace(os.sep, "/") for name in files]
    return sorted(found)


def play_operations(run):
    """FORMAT-net.md, FORMAT-solver.md, FORMAT-snapshot.md, FORMAT-error.md."""
    if "seed" in run.document:
        run.caffe.set_random_seed(run.document["seed"])
    for number, op in enumerate(run.given["ops"]):
        run.at(number)
        function = OPERATIONS.get(op["op"])
        if function is None:
            raise Unreached("the operation %r" % op["op"])
        try:
            function(run, op)
        except Unreached:
            raise
        except Exception as error:
            if run.document["kind"] != "error" or is_fatal(run.caffe, error):
                raise
            raised = {"op": number, "type": type(error).__name__, "message": str(error)}
            run.recorded["exception"] = [raised]
            return


def net_of(run, op, key="net"):
    name = op.get(key, "net")
    solver, _, which = name.partition(".")
    if name in run.nets:
        return run.nets[name]
    solver = run.solvers[solver]
    return solver.net if which == "net" else solver.test_nets[int(which[len("test") :])]


def solver_of(run, op):
    return run.solvers[op.get("solver", "solver")]


def op_net(run, op):
    if op.get("positional"):
        net = run.caffe.Net(op["model"], op["weights"], PHASES[op["phase"]])
    else:
        net = run.make_net(op["model"], op["phase"], op.get("level", 0), op.get("stages") or (), op.get("weights"))
    run.nets[op.get("as", "net")] = net


def op_info(run, op):
    info = dict(run.inside.structure(net_of(run, op)))
    if op.get("proto"):
        info["proto"] = run.inside.definition(net_of(run, op))
    run.note("info", op["as"], info)


def op_shapes(run, op):
    blobs = net_of(run, op).blobs
    run.note("shapes", op["as"], {name: list(blob.shape) for name, blob in blobs.items()})


def value_of(run, op):
    if "value" in op:
        return op["value"]
    array = run.array(op["array"])
    return array.astype(np.float32) + np.float32(op["offset"]) if "offset" in op else array


def op_set(run, op):
    getattr(net_of(run, op).blobs[op["blob"]], op.get("what", "data"))[...] = value_of(run, op)


def op_set_param(run, op):
    getattr(net_of(run, op).params[op["layer"]][op["index"]], op.get("what", "data"))[...] = value_of(run, op)


def op_forward(run, op):
    loss = forward(net_of(run, op), op.get("start"), op.get("end"))
    if "as" in op:
        run.note("loss", op["as"], loss)


def op_callbacks(run, op):
    events = []
    run.note("events", op["as"], events)
    for when in ("before_forward", "after_forward", "before_backward", "after_backward"):
        getattr(net_of(run, op), when)(lambda layer, when=when: events.append("%s %d" % (when, layer)))


def op_dump(run, op):
    net = net_of(run, op)
    for what in op["what"]:
        which = "diff" if what.endswith("diffs") else "data"
        if what.startswith("blob"):
            blobs = [(name, blob) for name, blob in net.blobs.items() if op.get("only") is None or name in op["only"]]
        else:
            blobs = [("%s/%d" % (layer, i), blob) for layer, own in net.params.items() for i, blob in enumerate(own)]
        prefix = "%s/%s" % (op["as"], what[:-1])
        arrays = [("%s/%s" % (prefix, name), contents(blob, which)) for name, blob in blobs]
        if op.get("digest"):
            put_digest(run, prefix, arrays, op["digest"] == "sha")
        else:
            run.arrays += arrays


def put_digest(run, prefix, arrays, sha):
    digest = {"names": [name for name, _ in arrays], "shapes": [list(array.shape) for _, array in arrays]}
    if sha:
        digest["sha256"] = [hashlib.sha256(array.astype("<f4").tobytes()).hexdigest() for _, array in arrays]
    run.note("digests", prefix, digest)
    rows = {"stats": [], "first": [], "strided": []}
    for _, array in arrays:
        x = array.astype(np.float64).ravel()
        ends = [x.min(), x.max()] if x.size else [np.nan, np.nan]
        m = min(DIGEST, x.size)
        rows["stats"].append([x.sum(), abs(x).sum(), (x * x).sum()] + ends)
        for key, values in (("first", x[:DIGEST]), ("strided", x[np.arange(m) * x.size // max(m, 1)])):
            rows[key].append(list(values) + [np.nan] * (DIGEST - len(values)))
    for key in ("stats", "first", "strided"):
        run.put("%s/%s" % (prefix, key), np.array(rows[key], np.float64))


def op_returned(method):
    def operation(run, op):
        named = {key: op[key] for key in ("blobs", "diffs", "start", "end") if key in op}
        named.update((name, run.array(array)) for name, array in op.get("inputs", {}).items())
        arrays = getattr(net_of(run, op), method)(**named)
        run.note("returned", op["as"], sorted(arrays))
        run.arrays += [("%s/%s" % (op["as"], name), np.array(array)) for name, array in arrays.items()]

    return operation


def op_share_with(run, op):
    net_of(run, op).share_with(net_of(run, op, "other"))


def op_set_input_arrays(run, op):
    net_of(run, op).set_input_arrays(run.array(op["data"]), run.array(op["labels"]))


# --- solvers


def op_solver(run, op):
    make = getattr(run.caffe, op["class"]) if "class" in op else run.caffe.get_solver
    solver = run.solvers[op.get("as", "solver")] = make(op["file"])
    feed(run, solver.net, op.get("feed", {}), op.get("feed_from", 0))
    for net, feeds in zip(solver.test_nets, op.get("test_feed", ())):
        feed(run, net, feeds, 0)


def feed(run, net, feeds, passes):
    """Before each pass write the next entry of the given arrays."""
    if not feeds:
        return
    if not hasattr(net, "before_forward"):
        raise Unreached("callbacks of nets, which this pycaffe does not have")
    arrays = {blob: run.array(name) for blob, name in feeds.items()}
    count = [passes]

    def write(layer):
        if layer == 0:
            for blob, array in arrays.items():
                net.blobs[blob].data[...] = array[count[0] % len(array)]
            count[0] += 1

    net.before_forward(write)


class Rows(object):
    """What one call of Step or Solve records."""

    def __init__(self, run, solver, op):
        self.inside, self.solver, self.every = run.inside, solver, op.get("every", 1)
        self.learnable, self.history = run.inside.learnable(solver.net), run.inside.history(solver)
        self.with_gradients = op.get("grads", True)
        self.rows = {key: [] for key in ("iter", "current_step", "loss", "smoothed_loss", "lr", "param_iter")}
        self.many = {}
        self.open = False  # an iteration whose update is not recorded yet
        self.on = True
        solver.add_callback(self.updated, self.gradients_ready)
        # Solve runs forward once more at its end, which may move statistics that are parameters.
        solver.net.before_forward(lambda layer: self.updated() if layer == 0 else None)

    def gradients_ready(self):
        if not self.on:
            return
        state = self.inside.solver_state(self.solver)
        row = len(self.rows["iter"])
        self.rows["iter"].append(self.solver.iter)
        self.rows["loss"].append(state["losses"][row % len(state["losses"])])
        self.rows["smoothed_loss"].append(state["smoothed_loss"])
        self.rows["lr"].append(self.inside.rate(self.solver))
        if self.with_gradients:
            self.append("grad", [blob.diff for blob in self.learnable])
        self.open = True

    def updated(self):
        if not (self.on and self.open):
            return
        # Between iterations nothing changes until the next forward pass.
        if self.solver.iter > self.rows["iter"][-1]:
            self.open = False
            self.rows["current_step"].append(self.inside.solver_state(self.solver)["current_step"])
            if self.rows["iter"][-1] % self.every == 0:
                self.rows["param_iter"].append(self.rows["iter"][-1])
                self.append("param", [blob.data for blob in self.learnable])
                self.append("history", [blob.data for blob in self.history])

    def append(self, what, arrays):
        for column, array in zip(self.many.setdefault(what, [[] for _ in arrays]), arrays):
            column.append(np.array(array))

    def arrays(self):
        whole = ("iter", "current_step", "param_iter")
        names = ("iter", "current_step", "loss", "smoothed_loss", "lr") + (("param_iter",) if self.every > 1 else ())
        found = [(key, np.array(self.rows[key], np.int32 if key in whole else np.float32)) for key in names]
        for what in ("grad", "param", "history"):
            found += [("%s/%d" % (what, k), np.array(rows)) for k, rows in enumerate(self.many.get(what, ()))]
        return found


def op_train(train):
    def operation(run, op):
        solver = solver_of(run, op)
        rows = Rows(run, solver, op)
        train(solver, op)
        rows.updated()
        rows.on = False
        run.arrays += [("%s/%s" % (op["as"], name), array) for name, array in rows.arrays()]
        op_solver_state(run, op)

    return operation


def op_solver_state(run, op):
    solver = solver_of(run, op)
    state = dict(run.inside.solver_state(solver), iter=solver.iter, num_test_nets=len(solver.test_nets))
    if not state["losses"]:
        del state["smoothed_loss"]  # memory that nobody wrote
    run.note("solver_state", op["as"], state)


def op_solver_dump(run, op):
    solver = solver_of(run, op)
    learnable = run.inside.learnable(solver.net)
    dumped = [("param", "data", learnable), ("history", "data", run.inside.history(solver))]
    dumped[1:1] = [("diff", "diff", learnable)] if op.get("diff") else []
    for name, which, blobs in dumped:
        for k, blob in enumerate(blobs):
            run.put("%s/%s/%d" % (op["as"], name, k), contents(blob, which))


def op_py_param(run, op):
    param = solver_of(run, op).param
    names = ("max_iter", "display", "base_lr", "layer_wise_reduce")
    run.note("py_param", op["as"], {name: getattr(param, name) for name in names})


def op_actions(run, op):
    answers = iter(op["list"])
    run.inside.set_actions(solver_of(run, op), lambda: next(answers, "none"))


def op_compare(run, op):
    a, b = [
        {name[len(op[side]) + 1 :]: array for name, array in run.arrays if name.startswith(op[side] + "/")}
        for side in "ab"
    ]
    shared = [i for i in a["iter"].tolist() if i in b["iter"].tolist()]
    different = []
    for name in a:
        if name not in b or name in ("iter", "param_iter"):
            continue
        sparse = name.partition("/")[0] in ("param", "history")
        index = [(side["param_iter"] if sparse and "param_iter" in side else side["iter"]).tolist() for side in (a, b)]
        there = [i for i in shared if i in index[0] and i in index[1]]
        rows = [side[name][[own.index(i) for i in there]] for side, own in zip((a, b), index)]
        if not same_bits(*rows):
            different.append(name)
    run.note("compare", op["as"], {"iterations": shared, "bitwise": not different, "different": different})


# --- files


MESSAGES = {".caffemodel": "NetParameter", ".solverstate": "SolverState", ".binaryproto": "BlobProto"}
FLOATS = (("data", np.float32), ("diff", np.float32), ("double_data", np.float64), ("double_diff", np.float64))


def is_hdf5(name):
    return name.endswith((".h5", ".hdf5"))


def read_bytes(path):
    with io.open(path, "rb") as stream:
        return stream.read()


def op_files(run, op):
    found = {}
    for name in files_below("."):
        if name not in run.given_files and os.path.basename(name) != "lock.mdb":
            data = read_bytes(name)
            found[name] = {"size": len(data)}
            if not is_hdf5(name):
                found[name]["sha256"] = hashlib.sha256(data).hexdigest()
    run.note("files", "files", found)


def op_keep(run, op):
    run.recorded["kept"] = ["out/" + name for name in op["files"]]
    for name in op["files"]:
        kept = os.path.join(run.results, "out", name)
        if not os.path.isdir(os.path.dirname(kept)):
            os.makedirs(os.path.dirname(kept))
        shutil.copyfile(name, kept)
        run.kept.append("out/" + name)


def op_tool(run, op):
    folder = os.environ.get("CAFFE_TOOLS")
    names = [os.path.join(folder, op["args"][0] + end) for end in ("", ".bin")] if folder else []
    tools = [name for name in names if os.path.exists(name)]
    if not tools:
        raise Unreached("the program %s (give the folder of Caffe's programs with --tools)" % op["args"][0])
    run.note("tool_exit", op["as"], subprocess.call([tools[0]] + op["args"][1:]))


def op_decode(run, op):
    if is_hdf5(op["file"]):
        tree, arrays = read_hdf5(op["file"])
        run.note("decoded", op["as"], {"tree": tree})
    else:
        text, arrays = read_protobuf(op["file"])
        run.note("decoded", op["as"], {"text": text})
    run.arrays += [("%s/%s" % (op["as"], name), array) for name, array in arrays]


def read_protobuf(path):
    from caffe.proto import caffe_pb2
    from google.protobuf import text_format

    message = getattr(caffe_pb2, MESSAGES[os.path.splitext(path)[1]])()
    message.ParseFromString(read_bytes(path))
    blobs = [("", message)]
    if path.endswith(".caffemodel"):
        blobs = [("%s/%d/" % (layer.name, i), blob) for layer in message.layer for i, blob in enumerate(layer.blobs)]
    elif path.endswith(".solverstate"):
        blobs = [("history/%d/" % i, blob) for i, blob in enumerate(message.history)]
    arrays = []
    for prefix, blob in blobs:
        legacy = any(blob.HasField(name) for name in ("num", "channels", "height", "width"))
        shape = [blob.num, blob.channels, blob.height, blob.width] if legacy else list(blob.shape.dim)
        for name, dtype in FLOATS:
            if len(getattr(blob, name)):
                arrays.append((prefix + name, np.array(getattr(blob, name), dtype).reshape(shape)))
            blob.ClearField(name)
    return text_format.MessageToString(message, as_utf8=False), arrays


def read_hdf5(path):
    try:
        import h5py
    except ImportError:
        raise Unreached("h5py, which reads HDF5 files")
    tree, arrays = {}, []

    def visit(name, thing):
        if isinstance(thing, h5py.Group):
            tree[name + "/"] = "group"
            return
        value, entry = thing[()], tree.setdefault(name, {"dtype": str(thing.dtype)})
        if thing.shape == ():
            entry["value"] = value.decode() if isinstance(value, bytes) else str(value)
        else:
            entry["shape"] = list(thing.shape)
            if thing.dtype.kind == "f":
                arrays.append((name, value))
            else:
                entry["value"] = value.tolist()

    with h5py.File(path, "r") as stream:
        stream.visititems(visit)
    return tree, arrays


def on_net(method, *keys):
    return lambda run, op: getattr(net_of(run, op), method)(*[op[key] for key in keys])


def on_solver(method, *keys):
    return lambda run, op: getattr(solver_of(run, op), method)(*[op[key] for key in keys])


OPERATIONS = {
    "seed": lambda run, op: run.caffe.set_random_seed(op["value"]),
    "net": op_net,
    "info": op_info,
    "shapes": op_shapes,
    "set": op_set,
    "set_param": op_set_param,
    "reshape_blob": lambda run, op: net_of(run, op).blobs[op["blob"]].reshape(*op["shape"]),
    "reshape": on_net("reshape"),
    "forward": op_forward,
    "backward": lambda run, op: backward(net_of(run, op), op.get("start"), op.get("end")),
    "clear_param_diffs": lambda run, op: clear_param_diffs(net_of(run, op)),
    "update": lambda run, op: run.inside.update(net_of(run, op)),
    "dump": op_dump,
    "save": on_net("save", "file"),
    "save_hdf5": on_net("save_hdf5", "file"),
    "copy_from": on_net("copy_from", "file"),
    "load_hdf5": on_net("load_hdf5", "file"),
    "share_with": op_share_with,
    "callbacks": op_callbacks,
    "py_forward": op_returned("forward"),
    "py_backward": op_returned("backward"),
    "forward_all": op_returned("forward_all"),
    "set_input_arrays": op_set_input_arrays,
    "solver": op_solver,
    "step": op_train(lambda solver, op: solver.step(op["n"])),
    "solve": op_train(lambda solver, op: solver.solve(op["resume"]) if "resume" in op else solver.solve()),
    "plain_step": on_solver("step", "n"),
    "snapshot": on_solver("snapshot"),
    "restore": on_solver("restore", "file"),
    "apply_update": on_solver("apply_update"),
    "lr": lambda run, op: run.note("lr", op["as"], solver_of(run, op).lr),
    "solver_state": op_solver_state,
    "solver_dump": op_solver_dump,
    "solver_param": lambda run, op: run.note("solver_param", op["as"], run.inside.solver_param(solver_of(run, op))),
    "py_param": op_py_param,
    "set_base_lr": lambda run, op: setattr(solver_of(run, op).param, "base_lr", op["value"]),
    "share_weights": lambda run, op: solver_of(run, op).share_weights(net_of(run, op)),
    "actions": op_actions,
    "compare": op_compare,
    "files": op_files,
    "keep": op_keep,
    "tool": op_tool,
    "decode": op_decode,
}


# --- data layers


def play_data(run):
    """FORMAT-data.md, as far as pycaffe reaches."""
    given = run.given
    if "layer" in given:
        raise Unreached("a layer's C++ functions")
    for db in given.get("dbs", ()):
        make_database(run, db)
    for name in ("solver_count", "solver_rank"):
        if name in given:
            getattr(run.caffe, "set_" + name)(given[name])
    data = Data(run)
    data.decode()
    data.keep()
    run.caffe.set_random_seed(run.document["seed"])
    for number, step in enumerate(given["steps"]):
        run.at(number)
        try:
            getattr(data, step["op"])(step)
        except RuntimeError as error:
            if is_fatal(run.caffe, error):
                raise
            data.raised.append({"step": number, "type": type(error).__name__, "text": str(error)})
        data.keep()
    data.end()


class Data(object):
    """Steps of kind data, by their names."""

    def __init__(self, run):
        self.run, self.net, self.raised, self.outputs, self.pixels = run, None, [], [], []
        self.shapes, self.blobs, self.memories, self.places = {}, {}, {}, {}
        self.forwards, self.params, self.writer = 0, [], None
        self.next = {}

    def decode(self):
        """Pixels as Caffe's reader and its codec give them."""
        given, inside = self.run.given, self.run.inside
        if ("pixels" in given or "decoded" in given) and not hasattr(inside, "read_image"):
            raise Unreached("a caffe_inside that was built with OpenCV")
        for entry in given.get("pixels", ()):
            image = inside.read_image(entry["file"], entry["height"], entry["width"], bool(entry["color"]))
            self.pixels.append(("pixels/" + entry["file"], as_image(image)))
        for entry in given.get("decoded", ()):
            for i, value in enumerate(records(self.run, entry["arrays"])[1]):
                self.pixels.append(("decoded/%d" % i, as_image(inside.decode_datum(to_hex(value), entry["mode"]))))

    def words(self):
        return [int(word) for word in self.run.inside.rng_next(4)]

    def build(self, step):
        again = "start" in self.next
        if not again:
            self.next["start"] = self.words()
        self.net = self.run.make_net(self.run.given["net"], self.run.given["phase"])
        if again:
            self.next.setdefault("built_again", []).append(self.words())
            return
        self.next["built"] = self.words()
        shapes = {name: list(self.net.blobs[name].shape) for name in self.run.given["blobs"]}
        self.run.recorded["built_shapes"] = shapes
        for layer in self.run.given.get("params", ()):
            for i, blob in enumerate(self.net.params[layer]):
                self.params.append(("param/%s/%d" % (layer, i), contents(blob)))

    def forward(self, step):
        for _ in range(step.get("times", 1)):
            self.net.forward()
            self.forwards += 1
            for name in self.run.given["blobs"]:
                blob = self.net.blobs[name]
                self.shapes.setdefault(name, []).append(list(blob.shape))
                self.blobs.setdefault(name, []).append(contents(blob).ravel())
                if self.run.given.get("buffers"):
                    places = self.places.setdefault(name, {})
                    at = blob.data.__array_interface__["data"][0]
                    self.memories.setdefault(name, []).append(places.setdefault(at, len(places)))

    def set(self, step):
        value = step["value"] if "value" in step else self.run.array(step["array"])
        self.net.blobs[step["blob"]].data[...] = value

    def reshape(self, step):
        self.net.blobs[step["blob"]].reshape(*step["shape"])
        if step.get("net"):
            self.net.reshape()

    def set_input_arrays(self, step):
        self.net.set_input_arrays(self.run.array(step["data"]), self.run.array(step["labels"]))

    def write_array(self, step):
        self.run.array(step["array"])[...] = step["value"]

    def sleep(self, step):
        time.sleep(step["seconds"])

    def destroy(self, step):
        self.net = None

    def writer_begin(self, step):
        keys, values = records(self.run, step["arrays"])
        code = (
            "import lmdb, sys\nenv = lmdb.open(sys.argv[1], map_size=1 << 28)\nput = env.begin(write=True)\n"
            "for line in iter(sys.stdin.readline, '\\n'):\n"
            "    key, value = (bytes(bytearray.fromhex(word)) for word in line.split())\n    put.put(key, value)\n"
            "print('begun'); sys.stdout.flush(); sys.stdin.readline(); put.commit(); env.close(); print('done')\n"
        )
        self.writer = subprocess.Popen([sys.executable, "-c", code, step["db"]], stdin=subprocess.PIPE,
                                       stdout=subprocess.PIPE)  # fmt: skip
        lines = ["%s %s" % (to_hex(key), to_hex(value)) for key, value in zip(keys, values)]
        self.writer.stdin.write(("\n".join(lines) + "\n\n").encode())
        self.writer.stdin.flush()
        self.writer.stdout.readline()

    def writer_commit(self, step):
        self.writer.communicate(b"\n")

    def keep(self):
        run = self.run
        run.recorded["shapes"] = {}
        for name, shapes in self.shapes.items():
            run.recorded["shapes"][name] = shapes[0] if all(shape == shapes[0] for shape in shapes) else shapes
        run.recorded["forwards"] = self.forwards
        if self.next:
            run.recorded["rng_next"] = self.next
        if self.raised:
            run.recorded["exceptions"] = self.raised
        if self.memories:
            run.recorded["buffers"] = self.memories
        run.arrays = [(name, np.concatenate(parts)) for name, parts in self.blobs.items()]
        run.arrays += self.params + self.pixels + self.outputs
        run.save()

    def end(self):
        self.next["end"] = self.words()
        self.net = None
        for name in self.run.given.get("outputs", ()):
            self.outputs += [("h5/%s/%s" % (name, path), array) for path, array in read_hdf5(name)[1]]
        self.keep()


def as_image(image):
    rows, columns, channels, size, text = image
    pixels = np.array(bytearray.fromhex(text), np.uint8).view("u%d" % size)
    return pixels.reshape((rows, columns) if channels == 1 else (rows, columns, channels))


def to_hex(data):
    return "".join("%02x" % byte for byte in bytearray(data))


def records(run, prefix):
    offsets = run.array(prefix + "_offsets")
    values = run.array(prefix + "_values").tobytes()
    keys = [bytes(key) for key in run.array(prefix + "_keys")]
    return keys, [values[offsets[i] : offsets[i + 1]] for i in range(len(keys))]


def make_database(run, db):
    keys, values = records(run, db["arrays"])
    if db["backend"].upper() == "LMDB":
        try:
            import lmdb
        except ImportError:
            raise Unreached("the Python package lmdb, to make the case's database")
        env = lmdb.open(db["name"], map_size=1 << 28)
        with env.begin(write=True) as transaction:
            for key, value in zip(keys, values):
                transaction.put(key, value)
        env.close()
        return
    try:
        import plyvel
    except ImportError:
        raise Unreached("the Python package plyvel, to make the case's database")
    database = plyvel.DB(db["name"], create_if_missing=True)
    with database.write_batch() as batch:
        for key, value in zip(keys, values):
            batch.put(key, value)
    database.close()


# --- the process that plays one case


def is_fatal(caffe, error):
    """Whether it is what an implementation raises where the original ends its process."""
    return isinstance(error, getattr(caffe, "CheckError", ()))


def end_as_fatal(error):
    for line in getattr(error, "complaints", ()):
        sys.stderr.write("[libprotobuf ERROR caffe.proto:0] %s\n" % line)
    sys.stderr.write("F0101 00:00:00.000000     1 %s:0] %s\n" % (error.file, error.message))
    sys.stderr.flush()
    os.abort()


def play(folder, results):
    """Play a case in the current folder and write what came out; the process ends here."""
    sys.path.insert(0, os.getcwd())
    run = Run(folder, results)
    if hasattr(run.caffe, "CheckError") and hasattr(run.caffe, "init_log"):
        run.caffe.init_log(0, True)  # the original logs to standard error without being told to
    more = {"environment": environment(run.caffe)}
    try:
        run.play()
    except Unreached as error:
        more["unreached"] = str(error)
    except Exception as error:
        if is_fatal(run.caffe, error):
            end_as_fatal(error)
        raise
    run.at("end")
    run.save(**more)
    write_npz(os.path.join(results, "arrays.npz"), run.arrays)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads and files of nets may not survive an interpreter that is shutting down


LIBRARIES = re.compile(r"lib(caffe|openblas|blas|cblas|atlas|mkl_rt|satlas|boost_python|protobuf|opencv_core|hdf5|"
                       r"lmdb|leveldb|glog|jpeg|cudart|cudnn)[\w.+-]*\.so[\w.]*")  # fmt: skip


def environment(caffe):
    """What recorded: versions, and the shared libraries that are loaded."""
    found = {
        "caffe": str(getattr(caffe, "__version__", "unknown")),
        "python": platform.python_version(),
        "numpy (pycaffe)": np.__version__,
        "libc": " ".join(platform.libc_ver()) if hasattr(platform, "libc_ver") else "",
        "machine": platform.platform(),
    }
    try:
        with io.open("/proc/self/maps", encoding="utf-8", errors="replace") as stream:
            paths = [os.path.realpath(line.split()[-1]) for line in stream if "/" in line]
        names = {os.path.basename(path) for path in paths}
        found["libraries"] = ", ".join(sorted(name for name in names if LIBRARIES.match(name)))
    except (IOError, OSError):
        pass
    return found


# --- the process that records


class Recorder(object):
    def __init__(self, options):
        self.options = options
        self.cases, self.environment = {}, {}

    def record(self, folder):
        """Record one case; its entry in record.json."""
        document = read_json(os.path.join(folder, "case.json"))
        name = "%s/%s" % (document["kind"], document["name"])
        if document["kind"] not in KINDS:
            return name, {"status": UNREACHED, "reason": "kind %s is not recorded through pycaffe" % document["kind"]}
        scratch = tempfile.mkdtemp(prefix="record-")
        try:
            return name, self.recorded(folder, document, scratch)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)

    def recorded(self, folder, document, scratch):
        status, result, arrays, text = self.run(folder, document, os.path.join(scratch, "0"))
        self.environment = result.get("environment", self.environment)
        if "unreached" in result:
            return {"status": UNREACHED, "reason": "it needs " + result["unreached"]}
        recorded, reason = assemble(document, status, result, heard(text))
        if reason:
            return {"status": DIED, "reason": reason}
        old_names, old = read_npz(os.path.join(folder, "recorded.npz"))
        order = {old_name: i for i, old_name in enumerate(old_names)}
        arrays = sorted(arrays, key=lambda entry: order.get(entry[0], len(order)))
        same_arrays = [entry[0] for entry in arrays] == old_names and all(same_bits(old[k], v) for k, v in arrays)
        was = document["recorded"]
        if "exactness" in was:
            recorded["exactness"] = was["exactness"]
        spread, spread_arrays = {}, []
        if self.options.spread and document["kind"] in ("net", "solver"):
            spread, spread_arrays = self.spread(folder, document, scratch, recorded, arrays)
            recorded["spread"] = spread
        elif "spread" in was and same_arrays:
            recorded["spread"] = was["spread"]
        differs = [key for key in sorted(set(was) | set(recorded)) if not same_json(was.get(key), recorded.get(key))]
        old_spread = read_npz(os.path.join(folder, "spread.npz"))[1]
        if spread_arrays and different_arrays(old_spread, dict(spread_arrays)):
            differs.append("spread.npz")
        if not same_arrays:
            differs += different_arrays(old, dict(arrays))
        self.write(
            folder, document, recorded, arrays, spread_arrays, not differs, os.path.join(scratch, "0", "results")
        )
        if differs:
            return {"status": "differs" if was or old_names else "new", "in": differs[:20]}
        return {"status": "same"}

    def run(self, folder, document, scratch, **variables):
        """Play the case in a process of its own: its status, result.json, arrays, standard error."""
        work, results = os.path.join(scratch, "work"), os.path.join(scratch, "results")
        shutil.copytree(folder, work, ignore=lambda at, names: [n for n in names if n in OWN_FILES and at == folder])
        for new in [results] + [os.path.join(work, made) for made in document["given"].get("mkdir", ())]:
            os.makedirs(new)
        environ = dict(os.environ, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", MKL_NUM_THREADS="1",
                       GLOG_logtostderr="1", GLOG_minloglevel="0", PYTHONDONTWRITEBYTECODE="1")  # fmt: skip
        environ.update(variables)
        if self.options.inside:
            environ["PYTHONPATH"] = os.pathsep.join([self.options.inside, environ.get("PYTHONPATH", "")])
        if self.options.tools:
            environ["CAFFE_TOOLS"] = os.path.abspath(self.options.tools)
        command = self.options.launcher + [os.path.abspath(__file__), "--play", os.path.abspath(folder), results]
        with open(os.path.join(scratch, "said"), "wb+") as said, open(os.devnull, "wb") as nothing:
            process = subprocess.Popen(command, cwd=work, env=environ, stdout=nothing, stderr=said)
            limit = threading.Timer(self.options.seconds, process.kill)
            limit.start()
            status = process.wait()
            limit.cancel()
            said.seek(0)
            text = said.read().decode("utf-8", "replace")
        result = os.path.join(results, "result.json")
        result = read_json(result) if os.path.exists(result) else {}
        names, arrays = read_npz(os.path.join(results, "arrays.npz"))
        return status, result, [(name, arrays[name]) for name in names], text

    def spread(self, folder, document, scratch, recorded, arrays):
        """How far everything moves under other kernels of OpenBLAS: largest absolute differences."""
        moved, loss, digests = {}, {}, {}
        for core in self.options.spread.split(","):
            where = os.path.join(scratch, core)
            _, result, others, _ = self.run(folder, document, where, OPENBLAS_CORETYPE=core)
            others = dict(others)
            for name, array in arrays:
                if name not in others or array.dtype.kind != "f" or same_bits(array, others[name]):
                    continue
                with np.errstate(invalid="ignore"):
                    apart = np.abs(array.astype(np.float64) - others[name])
                if name.rpartition("/")[0] in recorded.get("digests", {}):
                    digests[name] = np.fmax(digests.get(name, 0), np.nan_to_num(apart))
                else:
                    moved[name] = max(moved.get(name, 0.0), float(np.nan_to_num(apart).max()))
            for name, value in recorded.get("loss", {}).items():
                apart = abs(value - result.get("recorded", {}).get("loss", {}).get(name, value))
                if apart:
                    loss[name] = max(loss.get(name, 0.0), apart)
        rounded = [{key: float("%.3g" % x) for key, x in values.items()} for values in (moved, loss)]
        order = {name: i for i, (name, _) in enumerate(arrays)}
        digests = sorted(digests.items(), key=lambda entry: order[entry[0]])
        return {"arrays": rounded[0], "loss": rounded[1]}, [(name, x.astype(np.float32)) for name, x in digests]

    def write(self, folder, document, recorded, arrays, spread, same, results):
        """The case in the layout of the format; files of the same content are the case's own."""
        target = os.path.join(self.options.out, document["kind"], *document["name"].split("/"))
        if os.path.abspath(target) == os.path.abspath(folder):
            raise SystemExit("--out would write over the case itself: %s" % folder)
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(folder, target)
        if self.options.upstream != document["upstream"] or not same:
            document["upstream"], document["recorded"] = self.options.upstream, recorded
            write_json(os.path.join(target, "case.json"), document)
        if same:
            return
        for name in ("recorded.npz", "spread.npz", "out"):
            path = os.path.join(target, name)
            if os.path.isdir(path):
                shutil.rmtree(path)
            elif os.path.exists(path):
                os.remove(path)
        for name, content in (("recorded.npz", arrays), ("spread.npz", spread)):
            if content:
                write_npz(os.path.join(target, name), content)
        if os.path.isdir(os.path.join(results, "out")):
            shutil.copytree(os.path.join(results, "out"), os.path.join(target, "out"))

    def finish(self):
        out = self.options.out
        path = os.path.join(out, "provenance.json")
        provenance = read_json(path) if os.path.exists(path) else {"environment": {}, "upstreams": {}}
        provenance["recorded"] = time.strftime("%Y-%m-%d")
        facts = dict(self.environment)
        entry = {"source": self.options.source, "version": facts.pop("caffe", "unknown"), "build": self.options.build}
        provenance["upstreams"][self.options.upstream] = entry
        provenance["environment"].update(facts)
        write_json(path, provenance)
        write_json(os.path.join(out, "record.json"), {"environment": self.environment, "cases": self.cases})


def same_json(a, b):
    return a == b or json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)  # a NaN equals no other


def different_arrays(old, new):
    return sorted("array " + name for name in set(old) | set(new)
                  if name not in old or name not in new or not same_bits(old[name], new[name]))  # fmt: skip


def assemble(document, status, result, said):
    """What ``recorded`` holds, from what the process wrote and said; and why not, if it died where it must not."""
    log, parser, other, _ = said
    kind, recorded = document["kind"], dict(result.get("recorded", {}))
    fatal = next((entry for entry in log if entry[1] == "F"), None)
    if fatal is None and not (kind == "error" and status < 0) and (status or "environment" not in result):
        return {}, ("\n".join(other[-3:]) or "no word") + " (status %d)" % status
    message = without_addresses(fatal[3]) if fatal else ""
    if kind in ("layer", "filler"):
        message = message.replace(" (<PTR> vs. <PTR>)", "").rstrip()
        return ({"fatal": {"step": fatal[0], "message": message}} if fatal else recorded), ""
    if kind == "data":
        if fatal and document.get("asynchronous"):
            return {"fatal": message}, ""  # at which moment is left to chance
        lines = [[entry[1], entry[3]] for entry in log if entry[1] in "WE" and entry[2] != "upgrade_proto.cpp"]
        lines += [["protobuf " + entry[1], entry[2]] for entry in parser]
        recorded.update([("log", lines)] if lines else [])
        recorded.update([("fatal", message)] if fatal else [])
        return recorded, ""
    if kind == "error":
        recorded["exit"], recorded["signal"] = (None, -status) if status < 0 else (status, None)
        recorded["errors"] = [
            [int(e[0]), e[2], without_addresses(e[3])] for e in log if e[1] in "WE" and e[0].isdigit()
        ]
        recorded["parser"] = [[int(entry[0]), entry[1], entry[2]] for entry in parser if entry[0].isdigit()]
        if fatal:
            recorded["fatal"] = {"op": int(fatal[0]), "file": fatal[2], "message": message}
        return recorded, ""
    if fatal:
        return {}, "operation %s: %s" % (fatal[0], fatal[3])
    if "log" in document["given"]:
        wanted = [entry.partition("|") for entry in document["given"]["log"]]
        recorded["log"] = [
            [int(entry[0]), "%s %s" % (entry[1], entry[2]), without_times(entry[3])]
            for entry in log
            if entry[0].isdigit() and any(entry[2] == f and re.search(p, entry[3]) for f, _, p in wanted)
        ]
    return recorded, ""


KINDS = ("layer", "filler", "net", "solver", "snapshot", "error", "data")


def main():
    if sys.argv[1:2] == ["--play"]:
        play(*sys.argv[2:4])
    parser = argparse.ArgumentParser(description="Record conformance cases from the Caffe that this Python imports.")
    parser.add_argument("cases", nargs="+", metavar="CASE", help="folder of a case, or of cases")
    parser.add_argument("--out", required=True, metavar="DIR", help="where to write them")
    parser.add_argument(
        "--upstream",
        default="local",
        metavar="NAME",
        help="what the cases call this Caffe, a key of provenance.json (default: %(default)s)",
    )
    parser.add_argument("--source", default="unknown", help="for provenance.json: where this Caffe is from")
    parser.add_argument("--build", default="unknown", help="for provenance.json: how it was built")
    parser.add_argument("--inside", metavar="DIR", help="the folder that holds caffe_inside")
    parser.add_argument("--tools", metavar="DIR", help="the folder that holds Caffe's programs")
    parser.add_argument("--spread", metavar="CORE,CORE", help="run nets and solvers again with these kernels of "
                        "OpenBLAS (OPENBLAS_CORETYPE) and record how far they move: Nehalem,Sandybridge")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=600, help="limit for one case (default: %(default)s)")
    parser.add_argument("--launcher", default=sys.executable, help="what starts this script (default: this Python)")
    options = parser.parse_args()
    options.launcher = options.launcher.split()
    options.inside = os.path.abspath(options.inside) if options.inside else None
    if not os.path.isdir(options.out):
        os.makedirs(options.out)
    recorder = Recorder(options)
    for folder in [case for given in options.cases for case in cases_below(given)]:
        name, entry = recorder.record(folder)
        recorder.cases[name] = entry
        print("%s: %s%s" % (name, entry["status"], ": " + entry["reason"] if "reason" in entry else
                            " in " + ", ".join(entry["in"]) if entry.get("in") else ""))  # fmt: skip
        sys.stdout.flush()
    recorder.finish()
    return 0


if __name__ == "__main__":
    sys.exit(main())
