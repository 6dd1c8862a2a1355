"""The part of an image that becomes an item of a batch."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray


class Place(NamedTuple):
    """``height`` x ``width`` pixels from (``h_off``, ``w_off``) on, turned left to right if ``mirror``."""

    mirror: bool
    h_off: int
    w_off: int
    height: int
    width: int

    def of(self, planes: NDArray[Any]) -> NDArray[Any]:
        """A view of it in images (..., H, W)."""
        part = planes[..., self.h_off : self.h_off + self.height, self.w_off : self.w_off + self.width]
        return part[..., ::-1] if self.mirror else part
