"""The runners of the data pipeline: whatever comes out otherwise than recorded is found."""

import copy
from pathlib import Path

import numpy as np
import pytest

from conformance import kinds
from conformance.cases import read_case
from conformance.databases import Writer, records
from conformance.engines import make_engine
from conformance.images import CODEC_LEVELS, judge_decoded
from conformance.outcome import Findings

FIXTURES = Path(__file__).resolve().parents[2] / "fixtures"
pytestmark = pytest.mark.skipif(not FIXTURES.is_dir(), reason="the recorded cases are not here")


def played(name):
    case = read_case(FIXTURES / name)
    kind = kinds.find(case.kind)
    return case, kind, make_engine("refcaffe", "cpu").recording(case, kind.play)


def found(case, kind, got):
    findings = Findings()
    kind.judge(case, got, findings)
    return findings.count


def next_float(array):
    array.reshape(-1)[0] = np.nextafter(array.reshape(-1)[0], np.float32(np.inf))


TAMPERINGS = {
    "transform/seq/mirror-crop-train-1": [
        lambda got: next_float(got.arrays[min(got.arrays)]),
        lambda got: got.values["results"][-1]["draws"].append(1),
        lambda got: got.values["results"][-1]["mirror"].__setitem__(0, None),
        lambda got: got.values["results"].pop(),
        lambda got: got.values.update(global_next=0),
        lambda got: got.values["log"].append(["E", "something"]),
        lambda got: got.values.update(fatal={"op": 1, "text": "something"}),
    ],
    "transform/error/top-width": [
        lambda got: got.values.pop("fatal"),
        lambda got: got.values["fatal"].update(op=7),
        lambda got: got.values["fatal"].update(text="something"),
    ],
    "data/db/crop-mirror-train": [
        lambda got: next_float(got.arrays["data"]),
        lambda got: got.arrays.pop("label"),
        lambda got: next_float(got.arrays["param/pin/0"]) or next_float(got.arrays["label"]),
        lambda got: got.values["rng_next"]["end"].__setitem__(3, 0),
        lambda got: got.values["shapes"]["data"].append([1]),
        lambda got: got.values["buffers"]["data"].__setitem__(1, 0),
        lambda got: got.values.update(threads=["prefetch data"]),
        lambda got: got.values.update(forwards=1),
        lambda got: got.values["exceptions"].append({"step": 1, "type": "E", "text": ""}),
    ],
    "data/db/fatal-size-on-thread": [lambda got: got.values.pop("fatal")],
    "data/image/gray-file": [
        lambda got: got.values["also"]["bvlc-datareader-cpu"].arrays.update(label=np.zeros(3, np.float32)),
        lambda got: next(iter(got.values["decoded"][1].values())).reshape(-1).__setitem__(0, 77),
    ],
    "reader/queue/order": [
        lambda got: got.values["results"].pop(),
        lambda got: got.values["results"][5].update(value=7),
        lambda got: got.values.update(threads=["a call that waits"]),
    ],
    "dbtool/convert/encoded": [
        lambda got: got.values.update(exit=1),
        lambda got: got.values["said"].pop(),
        lambda got: got.values["log"].append(["W", "something"]),
        lambda got: got.values["dbs"].clear(),
        lambda got: got.values["dbs"]["db"][0].update(key="other"),
        lambda got: got.values["dbs"]["db"][0].update(channels=3),
        lambda got: got.arrays.update({"db/000/data": got.arrays["db/001/data"]}),
        lambda got: got.values.update(python=["KeyError: 'x'"]),
    ],
    "dbtool/mean/bytes": [lambda got: next_float(got.arrays["mean.binaryproto"])],
}


@pytest.mark.parametrize("name", TAMPERINGS)
def test_every_change_is_found(name):
    case, kind, got = played(name)
    assert found(case, kind, got) == 0
    for number, tamper in enumerate(TAMPERINGS[name]):
        other = copy.deepcopy(got)
        tamper(other)
        assert found(case, kind, other), f"change {number} of {name}"


@pytest.mark.parametrize(("exactness", "levels"), [("bitwise", 0), ("codec", CODEC_LEVELS)])
def test_pixels_may_be_so_far_off(exactness, levels):
    case = read_case(FIXTURES / "transform" / "encoded" / "jpeg-color")
    case.document["exactness"] = exactness
    pixels = np.full((2, 2, 3), 100, np.uint8)
    for off, good in [(levels, True), (levels + 1, False)]:
        findings = Findings()
        judge_decoded(case, [("a", b"a", pixels)], {b"a": pixels + np.uint8(off)}, findings)
        assert (findings.count == 0) == good
    findings = Findings()
    judge_decoded(case, [("a", b"a", pixels)], {}, findings)
    assert findings.count == 0


def test_a_writer_of_another_process(tmp_path):
    from refcaffe import data

    case = read_case(FIXTURES / "data" / "db" / "writer")
    path = str(tmp_path / "db")
    data.write(path, records(case, "db"))
    writer = Writer(case, path, "w")
    assert list(data.read(path)) == sorted(records(case, "db"))
    writer.commit()
    both = dict(records(case, "db")) | dict(records(case, "w"))
    assert list(data.read(path)) == sorted(both.items())
    Writer(case, path, "w").close()
