"""This module calls the interface of libbluefog_cuda.so (src/device/api.h) on torch's tensors."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_double, c_int, c_size_t, c_void_p
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from bluefog_pg._core.loader import load

on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
DEVICE = "cuda"
VERSION = 2
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
NUMBER = {dtype: i for i, dtype in enumerate((*FLOATS, *INTEGERS))}
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

Handle = ctypes.c_ubyte * 64
_OUT, _STREAM = POINTER(c_void_p), c_void_p
_ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "versions": (POINTER(c_int), POINTER(c_int)),
    "set_device": (c_int,),
    "stream_create": (_OUT,),
    "stream_destroy": (_STREAM,),
    "stream_wait": (_STREAM,),
    "ignore_captures": (),
    "stream_is_capturing": (_STREAM, POINTER(c_int)),
    "allocate": (_OUT, c_size_t),
    "release": (c_void_p,),
    "allocate_host": (_OUT, c_size_t),
    "release_host": (c_void_p,),
    "copy": (c_void_p, c_void_p, c_size_t, _STREAM),
    "zero": (c_void_p, c_size_t, _STREAM),
    "share": (c_void_p, POINTER(Handle)),
    "open": (POINTER(Handle), _OUT),
    "close": (c_void_p,),
    "weighted_sum": (
        *(c_void_p, POINTER(c_void_p), POINTER(c_double), c_int),
        *(c_double, c_size_t, c_int, _STREAM),
    ),
    "cast": (c_void_p, c_int, c_void_p, c_int, c_size_t, _STREAM),
    "quantize": (c_void_p, c_void_p, c_int, c_size_t, c_size_t, _STREAM),
    "dequantize": (c_void_p, c_int, c_void_p, c_size_t, c_size_t, _STREAM),
    "top_k_scratch": (POINTER(c_size_t),),
    "top_k": (c_void_p, c_void_p, c_int, c_size_t, c_size_t, c_void_p, _STREAM),
    "scatter": (c_void_p, c_int, c_void_p, c_size_t, c_size_t, _STREAM),
}


class _Api(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("error_text", ctypes.CFUNCTYPE(ctypes.c_char_p, c_int)),
        *((name, ctypes.CFUNCTYPE(c_int, *types)) for name, types in _ARGUMENTS.items()),
    ]


def stream() -> int:
    return torch.cuda.current_stream().cuda_stream


def path() -> Path:
    return Path(str(load().__file__)).with_name("libbluefog_cuda.so")


class Kernels:
    """A Kernels has every call of the interface as a method, which raises where the call fails.

    Those that take most arguments are also methods of tensors. All calls go to torch's current
    stream.
    """

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))
        self._library.bluefog_device_get.restype = POINTER(_Api)
        found = self._library.bluefog_device_get(VERSION)
        assert found, f"{library} is of another version"
        self._api = found.contents
        assert self._api.size == ctypes.sizeof(_Api)

    def error(self, name: str, *args: Any) -> int:
        return int(getattr(self._api, name)(*args))

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in _ARGUMENTS:
            raise AttributeError(name)

        def call(*args: Any) -> None:
            error = self.error(name, *args)
            assert error == 0, f"{name}: {self._api.error_text(error).decode()}"

        return call

    def given(self, name: str, *args: Any) -> Any:
        """Return what a call writes to its last argument."""
        kind = _ARGUMENTS[name][-1]._type_
        result = kind()
        getattr(self, name)(*args, byref(result))
        return result.value if kind is not Handle else result

    def given_first(self, name: str, *args: Any) -> int:
        """Return the address that a call writes to its first argument."""
        result = c_void_p()
        getattr(self, name)(byref(result), *args)
        assert result.value is not None
        return result.value

    def add(
        self, out: Tensor, inputs: Sequence[Tensor], weights: Sequence[float], divisor: float = 1
    ) -> Tensor:
        n = len(inputs)
        self.weighted_sum(
            out.data_ptr(), (c_void_p * n)(*(x.data_ptr() for x in inputs)),
            (c_double * n)(*weights), n, divisor, out.numel(), NUMBER[out.dtype], stream(),
        )  # fmt: skip
        return out

    def converted(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        out = torch.empty(len(x), dtype=dtype, device=x.device)
        to, source = NUMBER[dtype], NUMBER[x.dtype]
        self.cast(out.data_ptr(), to, x.data_ptr(), source, len(x), stream())
        return out

    def quantized(self, x: Tensor, block: int) -> Tensor:
        blocks = -(-len(x) // block)
        message = torch.empty(blocks * (4 + block), dtype=torch.uint8, device=x.device)
        pointers = message.data_ptr(), x.data_ptr()
        self.quantize(*pointers, NUMBER[x.dtype], len(x), block, stream())
        return message

    def dequantized(self, message: Tensor, like: Tensor, block: int) -> Tensor:
        out = torch.empty_like(like)
        number, pointer = NUMBER[like.dtype], message.data_ptr()
        self.dequantize(out.data_ptr(), number, pointer, len(like), block, stream())
        return out

    def largest(self, x: Tensor, k: int) -> Tensor:
        message = torch.empty(8 * k, dtype=torch.uint8, device=x.device)
        bytes_needed = self.given("top_k_scratch")
        scratch = torch.empty(bytes_needed, dtype=torch.uint8, device=x.device)
        self.top_k(
            message.data_ptr(), x.data_ptr(), NUMBER[x.dtype], len(x), k, scratch.data_ptr(),
            stream(),
        )  # fmt: skip
        return message

    def scattered(self, message: Tensor, like: Tensor) -> Tensor:
        out = torch.empty_like(like)
        number, k = NUMBER[like.dtype], len(message) // 8
        self.scatter(out.data_ptr(), number, message.data_ptr(), len(like), k, stream())
        return out


@functools.cache
def kernels() -> Kernels:
    return Kernels(path())


def same_bits(got: Tensor, want: Tensor) -> bool:
    as_bits = BITS[want.element_size()]
    return got.dtype == want.dtype and torch.equal(got.cpu().view(as_bits), want.view(as_bits))


def misaligned(x: Tensor) -> Tensor:
    """Return a copy on the device that begins one element behind a vector's boundary."""
    place = torch.empty(len(x) + 1, dtype=x.dtype, device=DEVICE)[1:]
    return place.copy_(x)
