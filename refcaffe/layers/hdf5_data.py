"""HDF5Data: rows of the datasets in HDF5 files."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from itertools import groupby
from typing import Any

import numpy as np

from refcaffe import context
from refcaffe.blob import Blob
from refcaffe.checks import Checker, CheckError
from refcaffe.device.room import require
from refcaffe.hdf5 import load_blob, opened
from refcaffe.layers.axes import to_int
from refcaffe.layers.base import Blobs, Layer, register
from refcaffe.proto import caffe_pb2
from refcaffe.rng.c_library import random_shuffle
from refcaffe.side import HOST, Side
from refcaffe.telling import telling

_check = Checker("hdf5_data_layer.cpp")
_log = logging.getLogger("refcaffe.hdf5_data_layer.cpp")

_BYTES_OF_A_NUMBER = 40  # in a list


class _Rows:
    """Rows of the files of a list, round and round. A file is loaded whole when its turn comes.

    ``blobs``: of the present file, one for each dataset; ``row``: the present one.
    """

    def __init__(self, files: list[str], datasets: Sequence[str], shuffle: bool, dtype: np.dtype[Any]) -> None:
        self._files = files
        self._datasets = datasets
        self._shuffle = shuffle
        self._dtype = dtype
        self._order = list(range(len(files)))
        if shuffle:
            random_shuffle(self._order)
        self._file = 0
        self._load()

    def _load(self) -> None:
        path = self._files[self._order[self._file]]
        self.blobs: list[Blob] = []
        failed = CheckError(f"Failed opening HDF5 file: {path}", _check.file)
        with opened(path, failed) as file, telling(lambda: f"HDF5 file '{path}'"):
            for name in self._datasets:
                self.blobs.append(Blob(dtype=self._dtype))
                load_blob(file, name, self.blobs[-1], min_axes=1, reshape=True)
            count = self.blobs[0].dim(0)
            for blob in self.blobs:
                _check.eq(blob.dim(0), count, "hdf_blobs_[i]->shape(0) == num")
        self._permutation: range | list[int] = range(count)
        self._place = 0
        if self._shuffle:
            require(count * _BYTES_OF_A_NUMBER)
            self._permutation = list(range(count))
            random_shuffle(self._permutation)

    @property
    def row(self) -> int:
        return self._permutation[self._place]

    @property
    def at_end(self) -> bool:
        """Whether there is no row left in this file."""
        return self._place == len(self._permutation)

    def advance(self) -> None:
        """Go beyond this row."""
        self._place += 1

    def turn(self) -> None:
        """Begin the next file, or this one again if it is the only one."""
        if len(self._files) > 1:
            self._file += 1
            if self._file == len(self._files):
                self._file = 0
                if self._shuffle:
                    random_shuffle(self._order)
            self._load()
        self._place = 0
        if isinstance(self._permutation, list):  # shuffled: those of a new file for the second time
            random_shuffle(self._permutation)


@register("HDF5Data")
class HDF5Data(Layer):
    """Each top: ``batch_size`` rows of the dataset of its name.

    Several solvers share the rows of a TRAIN layer: each keeps those whose number modulo their count is its
    rank (1.0).
    """

    exact_bottoms = 0
    min_tops = 1

    def layer_set_up(self, bottom: Blobs, top: Blobs) -> None:
        given = self.param.HasField("transform_param")
        _check(not given, "!this->layer_param_.has_transform_param()", f"{self.type} does not transform data.")
        param = self.param.hdf5_data_param
        files = self._listed(param.source)
        self._rows = _Rows(files, list(self.param.top), param.shuffle, self.dtype)
        self._number = 0  # of the row, through all rounds
        self._batch_size = to_int(param.batch_size)
        for blob, source in zip(top, self._rows.blobs, strict=True):
            blob.reshape((self._batch_size, *source.shape[1:]))

    @staticmethod
    def _listed(source: str) -> list[str]:
        _log.info("Loading list of HDF5 filenames from: %s", source)
        try:
            with open(source, "rb") as file:
                files = [os.fsdecode(name) for name in file.read().split()]
        except (OSError, ValueError) as error:  # the latter for a name that no file can have
            raise CheckError(f"Failed to open source file: {source}", _check.file).within(str(error)) from error
        _log.info("Number of HDF5 files: %d", len(files))
        text = f"Must have at least 1 HDF5 filename listed in {source}"
        _check.ge(len(files), 1, "num_files_ >= 1", text)
        return files

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        """The files decide, not the bottoms."""

    def forward_at(self, side: Side, bottom: Blobs, top: Blobs) -> None:
        taken = self._take_late() if context.current_build().reader_era else self._take()
        outs = [side.mutable_data(blob).reshape(self._batch_size, -1) for blob in top] if taken else []
        done = 0
        for _, picks in groupby(taken, key=lambda pick: id(pick[0])):
            blobs, rows = zip(*picks, strict=True)
            self._copy(side, [out[done : done + len(rows)] for out in outs], blobs[0], rows)
            done += len(rows)

    def _take(self) -> list[tuple[list[Blob], int]]:
        """The rows of a batch, and the blobs that they are in."""
        taken: list[tuple[list[Blob], int]] = []
        here = context.current()
        while len(taken) < self._batch_size:
            if self.phase == caffe_pb2.TEST or self._number % here.solver_count == here.solver_rank:
                taken.append((self._rows.blobs, self._rows.row))
            self._rows.advance()
            if self._rows.at_end:
                self._rows.turn()
            self._number += 1
        return taken

    def _take_late(self) -> list[tuple[list[Blob], int]]:
        """The same before 1.0: every solver takes all rows, and a file is loaded when its first row is asked for."""
        taken = []
        for _ in range(self._batch_size):
            if self._rows.at_end:
                self._rows.turn()
            taken.append((self._rows.blobs, self._rows.row))
            self._rows.advance()
        return taken

    def _copy(self, side: Side, outs: list[Any], blobs: list[Blob], rows: Sequence[int]) -> None:
        values = [HOST.data(blob).reshape(blob.dim(0), -1) for blob in blobs]
        for out, array, name in zip(outs, values, self.param.top, strict=True):
            if out.shape[1] != array.shape[1]:
                _check.fatal(f"Rows of {name} have {array.shape[1]} values, but had {out.shape[1]} in the first file.")
        if not side.gpu:
            for out, array in zip(outs, values, strict=True):
                out[...] = array[list(rows)]
            return
        for i, row in enumerate(rows):
            for out, array in zip(outs, values, strict=True):
                side.copy(out[i], array[row], HOST)

    def backward_at(self, side: Side, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        """There is nothing below."""
