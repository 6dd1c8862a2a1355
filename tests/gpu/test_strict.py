"""GPU mode on arrays that are as strict as CuPy's, with the CUDA kernels compiled for the host."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.cases import Case, find_cases
from conformance.cli import UsageError, default_fixtures
from conformance.engines import make_engine
from conformance.outcome import Status
from conformance.run import run_case
from refcaffe import device
from refcaffe.kernels.cuda import CudaKernels
from tests.gpu.strict import COMPILER, CUPY_NAMES, StrictRuntime, compile_for_host

pytestmark = pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler for the CUDA kernels here")

_modules: dict[object, object] = {}


@pytest.fixture(autouse=True)
def strict_device(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def compile_once(kernels: CudaKernels, dtype: object) -> object:
        return _modules.setdefault((id(kernels), dtype), compile_for_host(kernels, dtype))  # type: ignore[arg-type]

    monkeypatch.setattr(CudaKernels, "compile", compile_once)
    monkeypatch.setattr(device, "make", lambda name: StrictRuntime())
    for kernels in CudaKernels.every:
        kernels._modules.clear()
    yield
    for kernels in CudaKernels.every:
        kernels._modules.clear()


def cases(kind: str) -> list[Case]:
    try:
        folder = default_fixtures()
    except UsageError:
        return []
    return find_cases(folder / kind)


@pytest.mark.parametrize("run", ["layer", "net", "solver", "blob"])
def test_recorded_cases_of_gpu_mode(run: str) -> None:
    check([case for case in cases("gpumode") if case.group == run], "fake")


@pytest.mark.parametrize("kind", ["layer", "net", "solver"])
def test_cases_recorded_on_the_host(kind: str) -> None:
    check([case for case in cases(kind) if case.group != "full"], "cuda")  # judged as on CUDA; full nets take long


def check(some: list[Case], name: str) -> None:
    engine = make_engine("refcaffe", name)
    outcomes = [run_case(case, engine) for case in some]
    if not outcomes:
        pytest.skip("there are no recorded cases here")
    failed = [str(outcome) for outcome in outcomes if outcome.status is Status.FAILED]
    assert not failed, "\n".join(failed)


def test_cupy_has_what_is_called() -> None:
    cupy = pytest.importorskip("cupy", reason="CuPy is not installed")
    assert [name for name in sorted(CUPY_NAMES) if not hasattr(cupy, name)] == []
