"""What the fuzzer found, each once: the smallest input that showed it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from refcaffe import solvers
from refcaffe.blob import Blob
from refcaffe.checks import CheckError
from refcaffe.data.decode import read_image
from refcaffe.device import room
from refcaffe.net import Net
from refcaffe.proto import caffe_pb2
from refcaffe.proto.io import parse_text, write_binary
from refcaffe.proto.upgrade import upgrade_net
from tests.net.nets import inner_product, input_layer, make_net

ODD = b"\\377\\264"  # how prototxt writes the bytes of a name that is not UTF-8
ODD_NAME = b"\xff\xb4".decode("utf-8", "surrogateescape")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def _little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "room", lambda: 1 << 25)


def _refused(text: str, **options: Any) -> CheckError:
    with pytest.raises(CheckError) as caught:
        make_net(text, **options)
    return caught.value


def _layer(kind: str, text: str, bottoms: str = 'bottom: "x"') -> str:
    return f'layer {{ name: "l" type: "{kind}" {bottoms} top: "y" {text} }}\n'


def _solver(text: str) -> Any:
    Path("net.prototxt").write_text(input_layer() + inner_product("ip", "x"))
    Path("solver.prototxt").write_text('net: "net.prototxt" lr_policy: "fixed" base_lr: 0.1\n' + text)
    return solvers.create("solver.prototxt")


# --- memory that a parameter asks for


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    "text",
    [
        inner_product("l", "x", outputs=10**7),
        _layer("DummyData", 'dummy_data_param { shape { dim: 65536 dim: 1000 } data_filler { value: 1 } }', ""),
        _layer("Embed", "embed_param { input_dim: 1000000 num_output: 100 }"),
        _layer("Reduction", "") + _layer("Convolution", "convolution_param { num_output: 9999999 kernel_size: 1 }", "")
        .replace('top: "y"', 'bottom: "image" top: "z"'),
    ],
    ids=["parameter", "dummy data", "table", "kernels"],
)  # fmt: skip
def test_memory_is_refused_where_it_is_asked_for(text: str) -> None:
    error = _refused(input_layer() + input_layer("image", 1, 3, 2, 2) + text)
    assert error.message.startswith("Check failed: *ptr host allocation of size ")
    assert any(place.startswith("layer 'l' (") for place in error.where)


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    "layer",
    [
        _layer("Pooling", "pooling_param { kernel_size: 60000 pad: 50000 stride: 1 }"),
        _layer("Im2col", "convolution_param { kernel_h: 20000 kernel_w: 1 pad_h: 20000 pad_w: 0 }"),
    ],
    ids=["pooling", "columns"],
)
def test_tables_are_made_by_the_pass_that_needs_them(layer: str) -> None:
    net = make_net(input_layer("x", 1, 1, 4, 4) + layer)
    with pytest.raises(CheckError, match="host allocation of size") as caught:
        net.forward_from_to(0, 1)
    assert "layer 'l'" in str(caught.value)


def test_strides_beyond_the_kernel_take_no_memory() -> None:
    net = make_net(input_layer("x", 1, 1, 4, 4) + _layer("Pooling", "pooling_param { kernel_size: 2 stride: 1000003 }"))
    net.blobs["x"].data[...] = np.arange(16).reshape(1, 1, 4, 4)
    net.forward_from_to(0, 1)
    assert net.blobs["y"].data[0, 0, 0, 0] == 5
    assert len(net.all_layers[1].windows.phases.cells) == 16


def test_pooling_does_not_move_backward() -> None:
    text = "pooling_param { kernel_size: 10 stride: 4294967293 }"
    assert _refused(input_layer("x", 1, 1, 4, 4) + _layer("Pooling", text)).message.startswith(
        "Check failed: stride_h_"
    )


def test_a_pyramid_ends_at_the_pixels() -> None:
    error = _refused(input_layer("x", 1, 1, 4, 4) + _layer("SPP", "spp_param { pyramid_height: 4294967295 }"))
    assert error.message.startswith("Check failed: pad_h_ < kernel_h_ ")


@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_a_net_of_too_many_steps_is_not_begun(kind: str) -> None:
    inputs = input_layer("x", 2**31 - 1, 1) + input_layer("cont", 2**31 - 1, 1)
    recurrent = _layer(kind, "recurrent_param { num_output: 2 }", 'bottom: "x" bottom: "cont"')
    assert "host allocation of size 140737488289792" in _refused(inputs + recurrent).message


def test_an_image_is_not_made_larger_than_the_memory() -> None:
    import cv2

    cv2.imwrite("a.png", np.zeros((2, 2, 3), np.uint8))
    with pytest.raises(MemoryError):
        read_image("a.png", 2**31 - 1, 2**31 - 1)


@pytest.mark.usefixtures("_little_memory")
def test_rows_are_numbered_only_to_be_shuffled() -> None:
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("y", (10**6, 1), "f4", maxshape=(None, None), chunks=(1000, 1))
    Path("list.txt").write_text("a.h5")
    text = 'hdf5_data_param { source: "list.txt" batch_size: 1 shuffle: %s }'
    make_net(_layer("HDF5Data", text % "false", "")).close()
    assert "host allocation of size 40000000" in _refused(_layer("HDF5Data", text % "true", "")).message


@pytest.mark.usefixtures("_little_memory")
@pytest.mark.parametrize(
    ("shape", "chunk"), [((4, 3), (2**28, 1)), ((10**6, 5), (3, 1))], ids=["one large chunk", "many small chunks"]
)
def test_chunks_that_take_more_than_what_is_in_them(shape: tuple[int, int], chunk: tuple[int, int]) -> None:
    net = make_net(input_layer("x", 1, shape[1]) + inner_product("ip", "x", outputs=shape[0]))
    with h5py.File("a.h5", "w") as file:
        file.create_dataset("data/ip/0", shape, "f4", maxshape=(None, None), chunks=chunk)
    with pytest.raises(CheckError, match="bytes of memory were asked for"):
        net.load_hdf5("a.h5")


# --- numbers


def test_four_gates_of_half_the_numbers_there_are() -> None:
    inputs = input_layer("x", 2, 1) + input_layer("cont", 2, 1)
    recurrent = _layer("LSTM", "recurrent_param { num_output: 2147483647 }", 'bottom: "x" bottom: "cont"')
    assert isinstance(_refused(inputs + recurrent), CheckError)


@pytest.mark.parametrize(
    "layer",
    [
        _layer("Dropout", "dropout_param { dropout_ratio: 1e38 }"),
        _layer("Dropout", "dropout_param { dropout_ratio: nan }"),
        _layer("Dropout", "dropout_param { dropout_ratio: inf }"),
        _layer("Log", "log_param { base: 1.0000001 scale: 1e38 }"),
    ],
)
def test_set_up_takes_any_number_without_a_word(layer: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make_net(input_layer() + layer)


def test_doubles_that_are_no_floats() -> None:
    blob, proto = Blob(), caffe_pb2.BlobProto()
    proto.shape.dim.append(3)
    signalling = np.array(0x7FF0000000000001, np.uint64).view(np.float64)
    proto.double_data.extend([1e300, -1e300, float(signalling)])
    blob.from_proto(proto)
    np.testing.assert_array_equal(blob.data, np.array([np.inf, -np.inf, np.nan], np.float32))


def test_negative_numbers_become_large_ones_in_an_upgrade() -> None:
    net = parse_text('layers { layer { type: "images" new_height: -2 } }', caffe_pb2.NetParameter, "text")
    upgrade_net(net, "text")
    assert net.layer[0].image_data_param.new_height == 2**32 - 2


# --- names


@pytest.mark.parametrize("readers", [1, 2])
@pytest.mark.parametrize(
    ("layer", "reader"),
    [
        (
            b'layer { name: "a@" type: "InnerProduct" bottom: "x" top: "y@" param { name: "w@" } '
            b"inner_product_param { num_output: 2 } }",
            b'layer { name: "%d" type: "ReLU" bottom: "y@" top: "%d" }',
        ),
        (
            b'layers { name: "a@" type: INNER_PRODUCT bottom: "x" top: "y@" param: "w@" '
            b"inner_product_param { num_output: 2 } }",
            b'layers { name: "%d" type: RELU bottom: "y@" top: "%d" }',
        ),
        (
            b'layers { layer { name: "a@" type: "innerproduct" num_output: 2 } bottom: "x" top: "y@" }',
            b'layers { layer { name: "%d" type: "relu" } bottom: "y@" top: "%d" }',
        ),
    ],
    ids=["now", "V1", "V0"],
)
def test_names_that_are_not_utf8_are_kept(layer: bytes, reader: bytes, readers: int) -> None:
    text = b'input: "x" input_dim: 1 input_dim: 1 input_dim: 1 input_dim: 3\n' + layer
    text += b"".join(reader % (i, i) for i in range(readers))
    Path("net.prototxt").write_bytes(text.replace(b"@", ODD))
    net = Net("net.prototxt", caffe_pb2.TRAIN)
    assert f"a{ODD_NAME}" in net.layer_names
    assert f"y{ODD_NAME}" in net.blobs
    net.params[f"a{ODD_NAME}"][0].data[...] = 7
    net.save("a.caffemodel")
    net.save_hdf5("a.h5")
    assert b"a\xff\xb4" in Path("a.caffemodel").read_bytes()
    for name in ("a.caffemodel", "a.h5"):
        other = Net("net.prototxt", caffe_pb2.TEST)
        other.copy_from(name)
        assert (other.params[f"a{ODD_NAME}"][0].data == 7).all()


def test_files_whose_names_are_not_utf8() -> None:
    Path(f"{ODD_NAME}.prototxt").write_text(input_layer() + inner_product("ip", "x"))
    Path("solver.prototxt").write_bytes(b'net: "' + ODD + b'.prototxt" snapshot: 1 snapshot_prefix: "s' + ODD + b'"')
    with solvers.create("solver.prototxt") as solver:
        solver.snapshot()
    assert {path.name for path in Path().glob(f"s{ODD_NAME}*")} == {
        f"s{ODD_NAME}_iter_0.caffemodel", f"s{ODD_NAME}_iter_0.solverstate",
    }  # fmt: skip
    with solvers.create("solver.prototxt") as solver:
        solver.restore(f"s{ODD_NAME}_iter_0.solverstate")


def test_a_missing_file_whose_name_is_not_utf8_is_named() -> None:
    Path("solver.prototxt").write_bytes(b'net: "' + ODD + b'"')
    with pytest.raises(CheckError, match="File not found: \udcff\udcb4"):
        solvers.create("solver.prototxt")


@pytest.mark.parametrize(
    "layer",
    [
        _layer("Data", 'data_param { source: "a\\0b" batch_size: 1 backend: LMDB }', ""),
        _layer("HDF5Data", 'hdf5_data_param { source: "a\\0b" batch_size: 1 }', ""),
        _layer("ImageData", 'image_data_param { source: "a\\0b" batch_size: 1 }', "").replace('"y"', '"y" top: "t"'),
    ],
)
def test_a_name_that_no_file_can_have(layer: str) -> None:
    assert "layer 'l'" in str(_refused(layer))


def test_a_snapshot_that_no_file_can_hold() -> None:
    with pytest.raises(CheckError, match="Cannot write to snapshot prefix"):
        _solver('snapshot: 1 snapshot_prefix: "a\\0b"')


@pytest.mark.parametrize("module", ["", ".x", "\\377"])
def test_a_python_layer_without_a_module_that_can_be(module: str) -> None:
    with pytest.raises(ImportError, match="layer 'l' wants class 'C' of module"):
        make_net(input_layer() + _layer("Python", f'python_param {{ module: "{module}" layer: "C" }}'))


# --- where


def test_rules_that_contradict_say_whose_they_are() -> None:
    assert "layer 'l'" in str(_refused(_layer("Input", "include { phase: TRAIN } exclude { phase: TEST }", "")))


def test_definitions_that_are_refused_are_named() -> None:
    Path("net.prototxt").write_text("layer { } layers { }")
    with pytest.raises(CheckError, match=r"net\.prototxt"):
        Net("net.prototxt", caffe_pb2.TRAIN)
    for text in ("solver_type: SGD type: 'SGD'", "type: 'Sgd'", "train_net: 'net.prototxt'", "average_loss: 0"):
        with pytest.raises(CheckError, match=r"solver\.prototxt"):
            _solver(text)


# --- solver states


def _restored_hdf5(**changes: Any) -> Any:
    solver = _solver('momentum: 0.5 snapshot_prefix: "s" snapshot_format: HDF5')
    solver.snapshot()
    with h5py.File("s_iter_0.solverstate.h5", "r+") as file:
        for name, (shape, kind) in changes.items():
            del file[name]
            file.create_dataset(name, shape, kind, maxshape=(None,) * len(shape) or None)
    solver.restore("s_iter_0.solverstate.h5")
    return solver


@pytest.mark.parametrize("kind", [h5py.string_dtype(), "S1000000"], ids=["of any length", "longer than the file"])
def test_a_name_in_a_dataset_of_absurd_size(kind: Any) -> None:
    with pytest.raises(CheckError):  # the first name is empty
        _restored_hdf5(learned_net=((2**31,), kind))


def test_an_iteration_in_a_dataset_of_absurd_size() -> None:
    assert _restored_hdf5(iter=((2**40,), "i8")).iter == 0


def _restored(change: Any) -> Any:
    solver = _solver('momentum: 0.5 type: "AdaDelta" snapshot_prefix: "s"')
    solver.snapshot()
    state = caffe_pb2.SolverState.FromString(Path("s_iter_0.solverstate").read_bytes())
    change(state)
    write_binary(state, "changed.solverstate")
    solver.restore("changed.solverstate")
    return solver


def _turn(state: Any, *dims: int) -> None:
    del state.history[2].shape.dim[:]
    state.history[2].shape.dim.extend(dims)


def test_a_history_of_another_shape_is_used() -> None:
    _restored(lambda state: _turn(state, 12)).apply_update()


def test_a_history_of_another_size_is_refused() -> None:
    def shorten(state: Any) -> None:
        _turn(state, 11)
        del state.history[2].data[11:]

    with pytest.raises(CheckError, match="history 2 is not of the size of its parameter") as caught:
        _restored(shorten)
    assert "restoring solver state from changed.solverstate" in caught.value.where


def test_fewer_steps_than_none() -> None:
    solver = _solver('momentum: 0.5 snapshot_prefix: "s"')
    solver.param.lr_policy, solver.current_step = "multistep", -3
    solver.param.stepvalue.append(5)
    with pytest.raises(CheckError, match=r"current_step_ >= 0 \(-3 vs. 0\)"):
        solver.learning_rate()
