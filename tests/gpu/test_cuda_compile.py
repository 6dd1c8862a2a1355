"""All CUDA kernels compile for the devices that are in use, which needs no GPU: NVRTC from a wheel, or nvcc."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import refcaffe.layers  # noqa: F401  all kernels are known afterwards
from refcaffe.kernels.cuda import OPTIONS, PRELUDE, TYPES, CudaKernels

ARCHITECTURES = (75, 80, 86, 89, 90)


def _nvrtc() -> ctypes.CDLL | None:
    """The library of NVIDIA's wheel ``nvidia-cuda-nvrtc-cu12``, or one that the system knows."""
    spec = importlib.util.find_spec("nvidia")
    places = [Path(place) for place in (spec.submodule_search_locations or [])] if spec else []
    found = [path for place in places for path in place.glob("cuda_nvrtc/lib/libnvrtc.so*")]
    for name in [*map(str, found), "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


NVRTC, NVCC = _nvrtc(), shutil.which("nvcc")


def compile_with_nvrtc(code: str, architecture: int) -> str:
    """What NVRTC complains of; empty if nothing."""
    assert NVRTC is not None
    program = ctypes.c_void_p()
    name = ctypes.c_char_p(b"kernels.cu")
    assert NVRTC.nvrtcCreateProgram(ctypes.byref(program), code.encode(), name, 0, None, None) == 0
    options = [f"--gpu-architecture=sm_{architecture}", *OPTIONS]
    texts = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
    failed = NVRTC.nvrtcCompileProgram(program, len(options), texts)
    size = ctypes.c_size_t()
    NVRTC.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    NVRTC.nvrtcGetProgramLog(program, log)
    NVRTC.nvrtcDestroyProgram(ctypes.byref(program))
    return log.value.decode() or f"error {failed}" if failed else ""


def compile_with_nvcc(code: str, folder: Path) -> str:
    """What nvcc complains of, for all architectures at once; empty if nothing."""
    (folder / "kernels.cu").write_text(code, encoding="utf-8")
    targets = [word for sm in ARCHITECTURES for word in ("-gencode", f"arch=compute_{sm},code=sm_{sm}")]
    built, source = folder / "kernels.fatbin", folder / "kernels.cu"
    command = [str(NVCC), *OPTIONS, "-fatbin", *targets, "-o", str(built), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stderr if done.returncode else ""


def test_there_are_kernels() -> None:
    names = [word for kernels in CudaKernels.every for word in kernels.source.split() if word == "KERNEL"]
    assert len(CudaKernels.every) >= 4
    assert len(names) >= 15


@pytest.mark.parametrize("dtype", list(TYPES), ids=str)
def test_kernels_compile(dtype: np.dtype, tmp_path: Path) -> None:
    # One program of all of them: their names do not clash.
    code = f"{PRELUDE}typedef {TYPES[dtype]} T;\n" + "".join(kernels.source for kernels in CudaKernels.every)
    if NVRTC is not None:
        complaints = {sm: compile_with_nvrtc(code, sm) for sm in ARCHITECTURES}
        assert not any(complaints.values()), complaints
    elif NVCC is not None:
        assert compile_with_nvcc(code, tmp_path) == ""
    else:
        pytest.skip("no CUDA compiler here: pip install nvidia-cuda-nvrtc-cu12, or nvcc")


def test_a_broken_kernel_is_seen(tmp_path: Path) -> None:
    code = f"{PRELUDE}KERNEL bad(long long n, float* x) {{ LOOP(i, n) {{ x[i] = nothing; }} }}\n"
    if NVRTC is not None:
        assert "nothing" in compile_with_nvrtc(code, ARCHITECTURES[0])
    elif NVCC is not None:
        assert "nothing" in compile_with_nvcc(code, tmp_path)
    else:
        pytest.skip("no CUDA compiler here: pip install nvidia-cuda-nvrtc-cu12, or nvcc")
