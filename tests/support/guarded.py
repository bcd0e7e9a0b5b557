"""This module makes tensors in every layout, and watches every other byte of their memory."""

from __future__ import annotations

import ctypes
import math

import torch

GUARD = 0xA5
FRONT, BACK = 64, 4  # bytes before the tensor's storage; elements behind the last one
# Memory is compared and copied faster in larger integers. These are the integers of each size.
LANES = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
LIBC = ctypes.CDLL(None)
LAYOUTS = ("contiguous", "offset", "strided", "transposed", "column", "misaligned")


def same_bytes(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Compare contiguous tensors of the same size in a fraction of the time of torch.equal."""
    bits = ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr())
    return LIBC.memcmp(*bits, ctypes.c_size_t(a.nbytes)) == 0


def keep_freed_memory() -> None:
    """Let malloc reuse freed memory from now on, since fresh memory takes a VM 2 ms per MiB."""
    m_trim_threshold, m_mmap_threshold = -1, -3
    LIBC.mallopt(m_trim_threshold, 1 << 30)
    LIBC.mallopt(m_mmap_threshold, 1 << 30)


def strides(shape: tuple[int, ...], layout: str) -> list[int]:
    def dense(sizes: tuple[int, ...]) -> list[int]:
        return [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]

    match layout:
        case "expanded":
            return [0] * len(shape)
        case "transposed":
            return dense(shape[::-1])[::-1]
        case "strided":
            return [2 * s for s in dense(shape)]
        case "column":  # A column is a part of a matrix that is twice as wide.
            return [2 * s for s in dense(shape)[:-1]] + [1] * bool(shape)
    return dense(shape)


class Guarded:
    """A Guarded holds a tensor, the memory around it, and a copy of that memory to compare with."""

    def __init__(self, tensor: torch.Tensor, memory: torch.Tensor, before: torch.Tensor) -> None:
        self.tensor, self._memory, self._before = tensor, memory, before
        # An empty tensor may have no address.
        start = max(tensor.data_ptr() - memory.data_ptr(), 0)
        self._lane = math.gcd(tensor.element_size(), start or 8, 8)
        lanes = tensor.element_size() // self._lane
        self._place = (
            (*tensor.shape, lanes),
            (*(s * lanes for s in tensor.stride()), 1),
            start // self._lane,
        )

    def _raw(self, memory: torch.Tensor) -> torch.Tensor:
        """Return a view of the tensor's bits in `memory`, as integers whose alignment is right."""
        return memory.view(LANES[self._lane]).as_strided(*self._place)

    def fill(self, x: torch.Tensor) -> None:
        """Write these elements to the tensor, and watch its memory from now on."""
        if x.numel():
            raw = x.reshape(-1).view(LANES[self._lane]).view(self._place[0])
            some = (slice(0, 1),) * self.tensor.dim() if self._shared() else ()
            self._raw(self._memory)[some].copy_(raw[some])
        self._before.copy_(self._memory)

    def values(self) -> torch.Tensor:
        """Return a copy of the elements in order."""
        copy = self._raw(self._memory).clone(memory_format=torch.contiguous_format)
        return copy.reshape(-1).view(self.tensor.dtype)

    def part(self, start: int, shape: tuple[int, ...]) -> Guarded:
        """Return a Guarded of some of the elements of a contiguous tensor."""
        view = self.tensor.view(-1)[start : start + math.prod(shape)].view(shape)
        return Guarded(view, self._memory, self._before)

    def changed(self) -> bool:
        return not same_bytes(self._memory, self._before)

    def spilled(self) -> bool:
        """Return whether a byte changed that is not the tensor's."""
        if not self._shared():
            self._raw(self._before).copy_(self._raw(self._memory))
        return self.changed()

    def _shared(self) -> bool:
        return 0 in self.tensor.stride()


def guarded(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, given: torch.Tensor | None = None
) -> Guarded:
    """Return a tensor in this layout.

    `given` are its elements in order; without them it has garbage.
    """
    steps = strides(shape, layout)
    start = 3 if layout == "offset" else 0
    count = start + 1 + sum(max(n - 1, 0) * s for n, s in zip(shape, steps, strict=True)) + BACK
    front = FRONT + (layout == "misaligned")
    size = -(-(front + count * dtype.itemsize) // 8) * 8
    memory = torch.full((size,), GUARD, dtype=torch.uint8)
    storage = torch.frombuffer(memory.numpy(), dtype=dtype, count=count, offset=front)
    made = Guarded(storage.as_strided(shape, steps, start), memory, memory.clone())
    if given is not None:
        made.fill(given)
    return made
