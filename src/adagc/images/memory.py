"""Memory of batches that are no longer in use, for the next ones.

An array of many megabytes is memory that the system has to clear first, page by page. For images
that are only copied, clearing takes longer than copying.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

_KEPT: Final = 2  # that wait for use: one batch is read while the one before it is in use
_SMALL: Final = 2**20  # bytes; smaller arrays are not cleared by the system each time
_WASTE: Final = 2  # a larger piece of memory than this many times the array is not used for it


class Recycled:
    """Empty arrays whose memory comes back when nothing refers to them any more.

    That includes views, and tensors made of them: an array may be kept for as long as one likes.
    Several threads may ask for arrays.
    """

    def __init__(self) -> None:
        # Appending and taking are atomic, so that an array may be freed in any thread at any time.
        self._free: deque[NDArray[np.uint8]] = deque(maxlen=_KEPT)

    def empty(self, shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
        """An array with values of any kind, as `numpy.empty` gives it."""
        dtype = np.dtype(dtype)
        size = math.prod(shape) * dtype.itemsize
        if size < _SMALL:
            return np.empty(shape, dtype)
        lent = np.asarray(_Lent(self._take(size), size, self._free))
        return lent.view(dtype).reshape(shape)

    def _take(self, size: int) -> NDArray[np.uint8]:
        """Memory that waits and is large enough; what does not fit is given up."""
        while self._free:
            try:
                memory = self._free.pop()
            except IndexError:  # another thread was faster
                break
            if size <= len(memory) <= _WASTE * size:
                return memory
        return np.empty(size, np.uint8)

    def __reduce__(self) -> tuple[type[Recycled], tuple[()]]:
        return Recycled, ()  # of another process: nothing waits there


class _Lent:
    """What arrays refer to that use this memory; it gives the memory back when they are gone."""

    def __init__(
        self, memory: NDArray[np.uint8], size: int, free: deque[NDArray[np.uint8]]
    ) -> None:
        self._memory, self._free = memory, free
        self.__array_interface__ = memory[:size].__array_interface__

    def __del__(self) -> None:
        self._free.append(self._memory)


__all__ = ["Recycled"]
