"""Formulas of LSTMUnit, LSTM and RNN: the unrolled net, step by step."""

from __future__ import annotations

from functools import reduce
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from conformance.bounds.formula import Arrays, Formula, MaybeArrays, formula
from conformance.bounds.linear import Affine
from conformance.bounds.running import Bounded, bounded, concatenate, where


def _sigmoid(x: Bounded, device: bool) -> Bounded:
    """1. / (1. + exp(-x)): exp of a float, the rest in double, on a device in float."""
    one_more = (-x).exp() + 1.0 if device else (-x).exp().doubled() + 1.0
    result = (1.0 / one_more).rounded()
    # exp may be too large for a float, and its error has no bound; the sigmoid is nowhere above exp(x).
    ceiling = 2 * np.exp(x.value + x.error)
    return Bounded(result.value, np.where(np.isinf(result.error), ceiling, result.error))


def _tanh(x: Bounded, device: bool) -> Bounded:
    """All in double; on a device 2 sigmoid(2x) - 1, all in float."""
    if device:
        return _sigmoid(x * 2.0, device) * 2.0 - 1.0
    return x.doubled().tanh().rounded()


class _Unit(NamedTuple):
    """One step of LSTM cells: gates, states, all (N, D); ``cont`` (N, 1)."""

    i: Bounded
    f: Bounded
    o: Bounded
    g: Bounded
    c_before: Bounded
    c: Bounded
    tanh_c: Bounded

    @classmethod
    def forward(cls, c_before: Bounded, gates: Bounded, cont: Bounded, device: bool) -> _Unit:
        size = c_before.shape[1]
        i, f, o, g = (gates[:, k * size : (k + 1) * size] for k in range(4))
        i, o, g = _sigmoid(i, device), _sigmoid(o, device), _tanh(g, device)
        f = where(cont.value == 0, 0.0, cont * _sigmoid(f, device))
        c = f * c_before + i * g
        return cls(i, f, o, g, c_before, c, _tanh(c, device))

    @property
    def h(self) -> Bounded:
        return self.o * self.tanh_c

    def backward(self, dc: Bounded, dh: Bounded) -> tuple[Bounded, Bounded]:
        """The gradients to the cells before and to the gates. With cont other than 0 and 1, f's is no derivative."""
        dc = dc + dh * self.o * (1.0 - self.tanh_c * self.tanh_c)
        gates = [
            dc * self.g * self.i * (1.0 - self.i),
            dc * self.c_before * self.f * (1.0 - self.f),
            dh * self.tanh_c * self.o * (1.0 - self.o),
            dc * self.i * (1.0 - self.g * self.g),
        ]
        return dc * self.f, concatenate(gates, axis=1)


@formula("LSTMUnit")
class LSTMUnit(Formula):
    """Bottoms (1, N, D), (1, N, 4D), (1, N); tops cells and hidden states. Who wants one gradient gets both."""

    bottoms_always = True

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        self.unit = _Unit.forward(bottoms[0][0], bottoms[1][0], bottoms[2][0].reshape(-1, 1), self.device)
        return [state.reshape(bottoms[0].shape) for state in (self.unit.c, self.unit.h)]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        if not any(wanted):
            return [None, None, None]
        gradients = self.unit.backward(top_diffs[0][0], top_diffs[1][0])
        return [gradient.reshape(1, *gradient.shape) for gradient in gradients] + [None]


class _Recurrent(Formula):
    """x (T, N, …), cont (T, N), perhaps a static input and first states; the states stay for the next forward pass."""

    bottoms_always = True
    params_always = True
    states = 1

    def __init__(self, layer: Any, train: bool, folder: Path) -> None:
        super().__init__(layer, train, folder)
        self.memory = [bounded(np.zeros(0))] * self.states
        self.conted: Arrays = []

    def forward(self, bottoms: Arrays, params: Arrays) -> Arrays:
        exposed = self.layer.recurrent_param.expose_hidden
        self.steps, self.streams = bottoms[1].shape
        self.static = len(bottoms) > 2 + (self.states if exposed else 0)
        self.cont = [bottoms[1][t].reshape(-1, 1) for t in range(self.steps)]
        size = self.layer.recurrent_param.num_output
        if exposed:
            first = [state.reshape(self.streams, size) for state in bottoms[-self.states :]]
        else:
            first = [self._remembered(k, self.streams * size).reshape(-1, size) for k in range(self.states)]
        self.input = Affine(params[0], params[1])
        self.recurrent = Affine(params[3 if self.static else 2])
        into = self.input.forward(self._x(bottoms))
        into = into.reshape(self.steps, self.streams, -1)
        self.fixed_weight = Affine(params[2])
        self.fixed = self.fixed_weight.forward(bottoms[2].reshape(self.streams, -1)) if self.static else None
        self.conted = []
        tops, last = self._unroll(into, first, params)
        for k, state in enumerate(last):
            self._remember(k, state.reshape(-1))
        hidden = [state.reshape(1, *state.shape) for state in last] if exposed else []
        return [_in_order(tops), *hidden]

    def backward(self, tops: Arrays, top_diffs: Arrays, bottoms: Arrays, wanted: list[bool]) -> MaybeArrays:
        gates = self._back(top_diffs[0])
        dx = self.input.backward(_in_order(gates).reshape(-1, gates[0].shape[1])).reshape(bottoms[0].shape)
        diffs: MaybeArrays = [dx, None, *(None for _ in bottoms[2:])]
        if self.static:
            diffs[2] = self.fixed_weight.backward(reduce(add, gates)).reshape(bottoms[2].shape)
        return diffs

    def param_diffs(self, top_diffs: Arrays, bottoms: Arrays, params: Arrays, old: Arrays) -> Arrays:
        gates = self._back(top_diffs[0])
        all_gates = concatenate(gates)
        new = [Affine.weight_diff(self._x(bottoms), all_gates, old[0]), all_gates.sum(0, old[1])]
        if self.static:
            static = bottoms[2].reshape(self.streams, -1)
            new.append(Affine.weight_diff(static, reduce(add, gates), old[2]))
        new.append(Affine.weight_diff(concatenate(self.conted), all_gates, old[len(new)]))
        return new + self._more_param_diffs(old[len(new) :])

    def _unroll(self, into: Bounded, first: Arrays, params: Arrays) -> tuple[Arrays, Arrays]:
        """The top's steps and the last states, from the transformed input (T, N, ·) and the first states."""
        raise NotImplementedError

    def _back(self, d: Bounded) -> Arrays:
        """The gradients (N, ·) to what goes into the cells at each step."""
        raise NotImplementedError

    def _more_param_diffs(self, old: Arrays) -> Arrays:
        return []

    def _into_cells(self, t: int, into: Bounded, h: Bounded) -> Bounded:
        self.conted.append(h * self.cont[t])
        total = self.recurrent.forward(self.conted[-1]) + into[t]
        return total if self.fixed is None else total + self.fixed

    def _out_of_cells(self, t: int, d: Bounded) -> Bounded:
        return self.recurrent.backward(d) * self.cont[t]

    def _x(self, bottoms: Arrays) -> Bounded:
        return bottoms[0].reshape(self.steps * self.streams, -1)

    def _remembered(self, k: int, size: int) -> Bounded:
        """State ``k`` of the last pass: what its memory holds, which is made anew if it is too small."""
        if size > self.memory[k].size:
            self.memory[k] = bounded(np.zeros(size))
        return self.memory[k][:size]

    def _remember(self, k: int, state: Bounded) -> None:
        before = self._remembered(k, state.size)
        self.memory[k] = concatenate([state, self.memory[k][before.size :]])


def _in_order(steps: Arrays) -> Bounded:
    return concatenate([step.reshape(1, *step.shape) for step in steps])


@formula("LSTM")
class LSTM(_Recurrent):
    states = 2

    def _unroll(self, into: Bounded, first: Arrays, params: Arrays) -> tuple[Arrays, Arrays]:
        h, c = first
        self.units: list[_Unit] = []
        for t in range(self.steps):
            unit = _Unit.forward(c, self._into_cells(t, into, h), self.cont[t], self.device)
            self.units.append(unit)
            h, c = unit.h, unit.c
        return [unit.h for unit in self.units], [h, c]

    def _back(self, d: Bounded) -> Arrays:
        dc = later = bounded(np.zeros(d[0].shape))
        gates: Arrays = []
        for t in reversed(range(self.steps)):
            dc, into = self.units[t].backward(dc, d[t] + later)
            later = self._out_of_cells(t, into)
            gates.insert(0, into)
        return gates


@formula("RNN")
class RNN(_Recurrent):
    """h = tanh(W_xh x + b_h + W_hh h_before), o = tanh(W_ho h + b_o)."""

    def _unroll(self, into: Bounded, first: Arrays, params: Arrays) -> tuple[Arrays, Arrays]:
        h = first[0]
        self.output = Affine(params[-2], params[-1])
        self.h: Arrays = []
        for t in range(self.steps):
            h = self._into_cells(t, into, h).tanh()
            self.h.append(h)
        self.o = [self.output.forward(h).tanh() for h in self.h]
        return self.o, [h]

    def _back(self, d: Bounded) -> Arrays:
        self.d_output = [d[t] * (1.0 - o * o) for t, o in enumerate(self.o)]
        later = bounded(np.zeros(self.h[0].shape))
        cells: Arrays = []
        for t in reversed(range(self.steps)):
            into = (self.output.backward(self.d_output[t]) + later) * (1.0 - self.h[t] * self.h[t])
            later = self._out_of_cells(t, into)
            cells.insert(0, into)
        return cells

    def _more_param_diffs(self, old: Arrays) -> Arrays:
        d = concatenate(self.d_output)
        return [Affine.weight_diff(concatenate(self.h), d, old[0]), d.sum(0, old[1])]
