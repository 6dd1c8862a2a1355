"""Normal samples by the ziggurat of Marsaglia and Tsang, as Boost (1.64 and later) draws them.

The area under a curve is cut into layers of equal size, i = 0 at the bottom. A sample is a random x in a
random layer. Nearly always x is within the layer above too, and done; else it lies in the *wedge* at the
layer's end, where a random height decides, or, in the bottom layer, in the *tail*, which exponential samples
give.

How many words a sample takes depends on all this. So what a sample would be if it started here is computed
for every word of a block, and then only the exceptions are walked through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from decimal import Decimal

    from refcaffe.rng.stream import Stream

_Function = Callable[["Decimal"], "Decimal"]
_Corners = tuple[NDArray[np.float64], NDArray[np.float64]]

_REJECTED, _INSIDE, _BY_HAND = 0, 1, 2


@cache
def _corners() -> tuple[_Corners, _Corners]:
    """Corners (x, y) of the layers of exp(-x²/2), 128, and of exp(-x), 256, from the bottom up.

    Computed with 50 digits (double precision would get the last bits of most of them wrong), some 20 ms.
    """
    from decimal import Decimal, localcontext  # only here: few programs that import this package draw normals

    def corners(layers: int, end: str, area: str, curve: _Function, inverse: _Function) -> _Corners:
        # The bottom layer has the tail's area too, hence a virtual corner beyond the last true one.
        x = [Decimal(area) / curve(Decimal(end)), Decimal(end)]
        y = [Decimal(0), curve(Decimal(end))]
        while len(x) < layers:
            y.append(y[-1] + Decimal(area) / x[-1])
            x.append(inverse(y[-1]))
        return np.array([*x, 0], np.float64), np.array([*y, 1], np.float64)

    with localcontext() as precision:
        precision.prec = 50
        normal = corners(
            128,
            "3.44261985589665212142432049146733970433759739",
            "0.00991256303533646107909568530581016219737970128",
            lambda x: (-x * x / 2).exp(),
            lambda y: (-2 * y.ln()).sqrt(),
        )
        exponential = corners(
            256,
            "7.69711747013104971404462804801521549911396864",
            "0.00394965982258155721997757195681486109191281237",
            lambda x: (-x).exp(),
            lambda y: -y.ln(),
        )
    return normal, exponential


class _Layers:
    """One curve's layers, rounded to the type of the samples; differences are rounded once."""

    def __init__(self, corners: _Corners, real: Any) -> None:
        x, y = corners
        self.x = x.astype(real)
        self.y = y.astype(real)
        self.width = (x[:-1] - x[1:]).astype(real)
        self.height = (y[1:] - y[:-1]).astype(real)


class _Ziggurat:
    """The samples of one type: ``real`` is np.float32 or np.float64."""

    def __init__(self, real: Any) -> None:
        corners, exponential_corners = _corners()
        self.real = real
        self.words = 1 if real is np.float32 else 2  # per fraction and layer
        self.fraction = real(2.0**-24 if real is np.float32 else 2.0**-53)
        self.normal = _Layers(corners, real)
        self.exponential = _Layers(exponential_corners, real)
        # By the low 8 bits of a word (bit 0 is the sign): what turns an integer into x, and where x must end.
        layer, sign = np.arange(256) >> 1, np.where(np.arange(256) & 1, real(1), real(-1))
        self.scale = self.normal.x[layer] * self.fraction * sign
        # Upstream compares with the double: the same as comparing with the next float that is not below it.
        above = corners[0][1:].astype(real)
        above = np.where(above < corners[0][1:], np.nextafter(above, real(np.inf)), above)
        self.limit = above[layer]

    def integers(self, words: NDArray[np.uint32]) -> NDArray[Any]:
        """The fraction that starts at each word, times 2**24 (float) or 2**53 (double, one element less)."""
        if self.words == 1:
            return (words >> np.uint32(8)).astype(self.real)
        leading = (words[1:] & np.uint32((1 << 29) - 1)).astype(np.int64) << 24
        return (leading | words[:-1] >> np.uint32(8)).astype(self.real)

    def height(self, stream: Stream) -> Any:
        """A number in [0, 1); as a float the largest words round up to 1 and are drawn again."""
        while True:
            u = self.real(stream.raw()) * self.real(2.0**-32)
            if u < 1:
                return u

    def under_normal(self, x: NDArray[Any], layer: NDArray[Any], u: NDArray[Any]) -> NDArray[np.bool_]:
        """Whether the points at ``x`` and relative height ``u`` in a layer's wedge lie under the curve.

        The wedge's chord and a tangent decide all but a few: one is above the curve and one below; which is
        which depends on the curve's bend, and that changes at x = 1.
        """
        end, foot = self.normal.x[layer], self.normal.y[layer]
        y = foot + u * self.normal.height[layer]
        chord = self.normal.width[layer] * u - (end - x)
        tangent = y - (foot + (end - x) * foot * end)
        bends_in = end >= 1
        below_upper = np.where(bends_in, chord, tangent) < 0
        below_lower = np.where(bends_in, tangent, chord) < 0
        under: NDArray[np.bool_] = below_upper & below_lower
        between = np.flatnonzero(below_upper & ~below_lower)
        under[between] = y[between] < self.exp(-(x[between] * x[between] / self.real(2)))
        return under

    def exp(self, x: NDArray[Any]) -> NDArray[Any]:
        """exp of the C library, or rounded from its double: NumPy's own may differ in the last bit."""
        return np.array([math.exp(value) for value in x.tolist()], self.real)

    def one_exponential(self, stream: Stream) -> Any:
        """An exponential sample; its wedges use the tangent at their upper corner."""
        x, y, shift = self.exponential.x, self.exponential.y, self.real(0)
        while True:
            words = stream.raws(self.words)
            i = int(words[0]) & 255
            here = self.integers(words)[0] * self.fraction * x[i]
            if here < x[i + 1]:
                return shift + here
            if i == 0:  # the tail of an exponential is one too
                shift = shift + x[1]
                continue
            u = self.height(stream)
            up = y[i] + u * self.exponential.height[i]
            chord = self.exponential.width[i] * u - (x[i] - here)
            tangent = up - (y[i + 1] + (x[i + 1] - here) * y[i + 1])
            if chord < 0 and (tangent < 0 or up < self.exp(np.array([-here]))[0]):
                return shift + here

    def tail(self, stream: Stream) -> Any:
        """The size of a normal sample beyond the last corner."""
        end = self.normal.x[1]
        while True:
            a = self.one_exponential(stream) / end
            b = self.one_exponential(stream)
            if self.real(2) * b > a * a:
                return a + end

    def block(self, stream: Stream, room: int) -> NDArray[Any]:
        """At most ``room`` samples of N(0, 1), in the stream's order; takes exactly their words."""
        first, span = stream.draws, room * self.words
        words = stream.ahead(span + self.words)  # to the height behind a pair that starts at the last word
        index = (words[:span] & np.uint32(255)).astype(np.intp)
        x = self.integers(words)[:span]
        x *= self.scale[index]
        outside = np.flatnonzero(np.abs(x) >= self.limit[index])
        layer = index[outside] >> 1
        u = words[outside + self.words].astype(self.real) * self.real(2.0**-32)
        verdict = self.under_normal(np.abs(x[outside]), layer, u).astype(np.int8)
        verdict[(layer == 0) | (u >= 1)] = _BY_HAND

        taken = np.zeros(span, np.bool_)
        here = 0  # the next sample starts here
        for at, what in zip(outside.tolist(), verdict.tolist(), strict=True):
            if at < here or (at - here) % self.words:
                continue  # this word belongs to another sample
            taken[here : at : self.words] = True
            here = at + self.words + 1
            if what == _BY_HAND:
                stream.skip(at + self.words - (stream.draws - first))
                what = self.by_hand(stream, x[at : at + 1], index[at : at + 1] >> 1)
                here = stream.draws - first
            taken[at] = what == _INSIDE
        taken[here :: self.words] = True
        here += max(0, -((here - span) // self.words)) * self.words  # the last pair may end behind the block
        stream.skip(here - (stream.draws - first))
        return x[taken]

    def by_hand(self, stream: Stream, x: NDArray[Any], layer: NDArray[Any]) -> int:
        """Finish the sample ``x``, one element, whose pair was drawn just now; returns the verdict."""
        if layer[0] == 0:
            x[:] = np.copysign(self.tail(stream), x)
            return _INSIDE
        u = np.array([self.height(stream)])
        return _INSIDE if self.under_normal(np.abs(x), layer, u)[0] else _REJECTED


@cache
def _ziggurat(real: Any) -> _Ziggurat:
    return _Ziggurat(real)


def gaussians(stream: Stream, room: int, real: Any) -> NDArray[Any]:
    """At most ``room`` samples of N(0, 1), perhaps none, of type ``real``: np.float32 or np.float64."""
    return _ziggurat(real).block(stream, room)
