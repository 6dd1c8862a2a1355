"""Parameters and solver states in HDF5. What the files hold byte by byte is recorded: see the conformance cases."""

import contextlib

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import refcaffe
from refcaffe import Blob, CheckError, hdf5
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text

SHARING = """
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "a" param { name: "w" } inner_product_param {
  num_output: 3 weight_filler { type: "gaussian" } } }
layer { name: "b" type: "InnerProduct" bottom: "a" top: "b" param { name: "w" } inner_product_param {
  num_output: 3 weight_filler { type: "gaussian" } bias_filler { type: "gaussian" } } }
"""


def make_net(text=SHARING, **options):
    return refcaffe.Net(parse_text(text, caffe_pb2.NetParameter, "test"), **options)


def params(net):
    return [blob.data.copy() for blobs in net.params.values() for blob in blobs]


def equal(a, b):
    return all((x == y).all() for x, y in zip(a, b, strict=True))


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "w.h5")


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_there_and_back(path, dtype):
    net, other, told = (make_net(dtype=dtype) for _ in range(3))
    net.params["b"][1].diff[...] = 7
    net.save_hdf5(path, write_diff=True)
    with h5py.File(path) as file:
        assert sorted(file) == ["data", "diff"]
        assert {name: sorted(group) for name, group in file["data"].items()} == {"a": ["0", "1"], "b": ["1"], "x": []}
        assert {name: sorted(group) for name, group in file["diff"].items()} == {
            "a": ["0", "1"], "b": ["0", "1"], "x": [],
        }  # fmt: skip
        assert file["data/a/0"].dtype == dtype
        assert (file["diff/b/1"][()] == 7).all()
    other.load_hdf5(path)
    told.copy_from(path)
    assert equal(params(net), params(other))
    assert equal(params(net), params(told))
    net.save_hdf5(path)
    with h5py.File(path) as file:
        assert list(file) == ["data"]


def test_other_types_of_numbers_are_converted(path):
    net = make_net()
    net.save_hdf5(path)
    with h5py.File(path, "r+") as file:
        for name, dtype in [("data/a/0", "i2"), ("data/a/1", "f8")]:
            values = np.arange(file[name].size, dtype=dtype).reshape(file[name].shape)
            del file[name]
            file[name] = values
    net.load_hdf5(path)
    assert net.params["a"][0].data.ravel().tolist() == list(range(9))
    assert net.params["a"][1].data.tolist() == [0, 1, 2]


def test_layers_are_found_by_name(path, caplog):
    net = make_net()
    net.save_hdf5(path)
    with h5py.File(path, "r+") as file:
        file["data/unknown/0"] = np.zeros(4)
        del file["data/b"]
    before = params(net)
    with caplog.at_level("INFO"):
        net.load_hdf5(path)
    assert "Ignoring source layer unknown" in caplog.text
    assert equal(before, params(net))


def _without(name):
    return lambda file: file.pop(name)


def _put(name, value):
    def change(file):
        if name in file:
            del file[name]
        file[name] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_without("data"), "Error reading weights from"),
        (_put("data/a", 3.0), "Error reading weights from"),
        (_without("data/a/1"), "Incompatible number of blobs for layer a"),
        (_put("data/a/2", 1.0), "Incompatible number of blobs for layer a"),
        (_put("data/a/0", np.zeros((9, 1))), "Source shape is 9 1 (9) target shape is 3 3 (9)"),
        (_put("data/a/0", np.zeros(())), "Source shape is (1) target shape is 3 3 (9)"),
        (_put("data/a/0", np.zeros((3, 3), bool)), "Unsupported datatype class: H5T_ENUM"),
        (_put("data/a/0", np.full((3, 3), b"x")), "Unsupported datatype class: H5T_STRING"),
        (_put("data/a/0", np.zeros((3, 3), complex)), "Unsupported datatype class: H5T_COMPOUND"),
        (lambda file: (file.pop("data/a/0"), file.create_group("data/a/0")), "Failed to get dataset ndims for 0"),
    ],
)
def test_files_that_are_refused(path, change, message):
    net = make_net()
    net.save_hdf5(path)
    with h5py.File(path, "r+") as file:
        change(file)
    with pytest.raises(CheckError) as caught:
        net.load_hdf5(path)
    assert message in caught.value.message


@pytest.mark.parametrize("name", ["p/q", "", "."])
def test_a_net_that_cannot_be_saved_leaves_the_old_file(path, tmp_path, name):
    good = make_net()
    good.save_hdf5(path)
    bad = make_net(SHARING.replace('name: "b"', f'name: "{name}"'))
    with pytest.raises(CheckError, match="Error saving weights to"):
        bad.save_hdf5(path)
    assert [file.name for file in tmp_path.iterdir()] == ["w.h5"]
    good.load_hdf5(path)


def test_two_layers_of_one_name(path):
    text = SHARING.replace('param { name: "w" }', "").replace('name: "b"', 'name: "a"')
    with pytest.raises(CheckError, match="Error saving weights to"):
        make_net(text).save_hdf5(path)
    make_net().save_hdf5(path)
    net = make_net(text)
    with h5py.File(path) as file:
        wanted = file["data/a/0"][()]
    net.load_hdf5(path)
    assert (net.all_layers[2].blobs[0].data == wanted).all()
    assert (net.all_layers[1].blobs[0].data != wanted).all()


def test_what_is_hdf5(tmp_path):
    with h5py.File(tmp_path / "plain", "w"), h5py.File(tmp_path / "later", "w", userblock_size=1024):
        pass
    (tmp_path / "other").write_bytes(bytes(5000))
    (tmp_path / "empty").touch()
    found = {name: hdf5.is_hdf5(str(tmp_path / name)) for name in ("plain", "later", "other", "empty", "gone", "")}
    assert found == {"plain": True, "later": True, "other": False, "empty": False, "gone": None, "": None}


@given(data=st.binary(max_size=300), start=st.sampled_from([b"", b"\x89HDF\r\n\x1a\n"]))
@settings(max_examples=60, deadline=None)
def test_rubbish_is_refused_or_taken_for_a_message(tmp_path_factory, data, start):
    path = tmp_path_factory.mktemp("rubbish") / "w"
    path.write_bytes(start + data)
    net = make_net()
    with pytest.raises(CheckError) if start else contextlib.suppress(CheckError):
        net.copy_from(path)


def test_a_file_cut_off_anywhere(path):
    net = make_net()
    net.save_hdf5(path)
    with open(path, "rb") as file:
        data = file.read()
    for size in range(0, len(data), 97):
        with open(path, "wb") as file:
            file.write(data[:size])
        with pytest.raises(CheckError):
            net.load_hdf5(path)


def test_numbers_and_strings(path):
    with hdf5.created(path, CheckError("no")) as file:
        hdf5.save_int(file, "i", -3)
        hdf5.save_string(file, "s", "models/ü.h5")
        file["number"] = np.array([0x434241], np.int32)
        file["variable"] = "any length"
        file["reals"] = np.array([2.9, 5.0])
    with hdf5.opened(path, CheckError("no")) as file:
        assert file["i"].shape == (1,)
        assert file["s"].dtype == "S13"
        assert hdf5.load_int(file, "i") == -3
        assert hdf5.load_int(file, "reals") == 2
        assert hdf5.load_string(file, "s") == "models/ü.h5"
        assert hdf5.load_string(file, "number") == "ABC"
        assert hdf5.load_string(file, "variable") == "any length"
        for name in ("gone", "s"):
            with pytest.raises(CheckError, match=f"Failed to load int dataset with name {name}"):
                hdf5.load_int(file, name)
        with pytest.raises(CheckError, match="Failed to get dataset info for gone"):
            hdf5.load_string(file, "gone")
        assert not hdf5.has_link(file, "a/b")
        blob = Blob()
        hdf5.load_blob(file, "reals", blob, min_axes=1, reshape=True)
        assert blob.data.tolist() == [np.float32(2.9), 5]
        for name, axes, message in [("gone", 0, "Failed to find HDF5 dataset gone"), ("reals", 2, "ndims >= min_dim")]:
            with pytest.raises(CheckError, match=message):
                hdf5.load_blob(file, name, blob, min_axes=axes, reshape=True)


def make_solver(prefix, kind):
    text = f'type: "{kind}" base_lr: 0.1 lr_policy: "step" stepsize: 2 gamma: 0.5 snapshot_format: HDF5 '
    param = parse_text(f'{text} snapshot_prefix: "{prefix}" random_seed: 2', caffe_pb2.SolverParameter, "test")
    loss = 'layer { name: "loss" type: "EuclideanLoss" bottom: "b" bottom: "x" top: "loss" }'
    net = SHARING.replace('param { name: "w" }', "") + loss
    param.net_param.CopyFrom(parse_text(net, caffe_pb2.NetParameter, "test"))
    return refcaffe.get_solver(param)


@pytest.mark.parametrize("kind", ["SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"])
def test_solver_states(tmp_path, kind):
    solver, other = make_solver(tmp_path / "s", kind), make_solver(tmp_path / "s", kind)
    for one in (solver, other):
        one.net.blobs["x"].data[...] = [[1, 2, 3], [3, 1, 2]]
    solver.step(3)
    solver.snapshot()
    assert sorted(file.name for file in tmp_path.iterdir()) == ["s_iter_3.caffemodel.h5", "s_iter_3.solverstate.h5"]
    other.restore(str(tmp_path / "s_iter_3.solverstate.h5"))
    assert (other.iter, other.current_step) == (3, 1)
    assert equal([blob.data for blob in solver.history], [blob.data for blob in other.history])
    solver.step(2)
    other.step(2)
    assert equal(params(solver.net), params(other.net))
    for change, message in [
        (_put("iter", "soon"), "Failed to load int dataset with name iter"),
        (_put("iter", 3), None),
        (_without("history/0"), "Incorrect length of history blobs."),
        (_without("history"), "Error reading history from"),
        (_without("current_step"), "Failed to load int dataset with name current_step"),
        (_put("learned_net", "gone"), "Couldn't open gone"),
    ]:
        with h5py.File(tmp_path / "s_iter_3.solverstate.h5", "r+") as file:
            change(file)
        if message:
            with pytest.raises(CheckError, match=message):
                other.restore(str(tmp_path / "s_iter_3.solverstate.h5"))
