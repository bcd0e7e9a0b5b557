"""This module has system calls refused to a process and its children, as container runtimes do."""

from __future__ import annotations

import ctypes
import errno
import platform
import runpy
import struct
import sys
from dataclasses import dataclass

SYSCALLS = {"socket": 41, "socketpair": 53, "madvise": 28, "memfd_create": 319, "pidfd_open": 434}
IS_KNOWN = platform.machine() == "x86_64"  # The numbers above are those of this machine.
NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2  # constants of prctl(2)
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # instructions of classic BPF
NUMBER, ARGUMENTS = 0, 16  # offsets in struct seccomp_data


@dataclass
class Refusal:
    """A Refusal lets a system call with this argument, or with any, fail with that error."""

    syscall: str
    error: int = errno.EPERM
    argument: tuple[int, int] | None = None  # the argument's index and value

    def program(self) -> list[tuple[int, int, int, int]]:
        test = [(JUMP_IF_EQUAL, 0, 1, SYSCALLS[self.syscall])]
        if self.argument is not None:
            place, value = self.argument
            test = [
                (JUMP_IF_EQUAL, 0, 3, SYSCALLS[self.syscall]),
                (LOAD, 0, 0, ARGUMENTS + 8 * place),
                (JUMP_IF_EQUAL, 0, 1, value),
            ]
        return [(LOAD, 0, 0, NUMBER), *test, (RETURN, 0, 0, ERRNO | self.error)]


UNIX_SOCKETS = [Refusal(call, argument=(0, 1)) for call in ("socket", "socketpair")]
MEMFDS = [Refusal("memfd_create")]
PIDFDS = [Refusal("pidfd_open", errno.ENOSYS)]
WIPE_ON_FORK = [Refusal("madvise", errno.EINVAL, (2, 18))]


def refuse(refusals: list[Refusal]) -> None:
    """Refuse these calls from now on. The process cannot take that back."""
    program = [line for refusal in refusals for line in refusal.program()]
    program.append((RETURN, 0, 0, ALLOW))
    lines = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in program))
    filter_ = ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(lines)))
    libc = ctypes.CDLL(None, use_errno=True)
    for arguments in ((NO_NEW_PRIVILEGES, 1, 0, 0, 0), (SET_SECCOMP, FILTER, filter_, 0, 0)):
        if libc.prctl(*arguments) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


def main() -> None:
    """Run a Python program with calls refused: sandbox.py NAME SCRIPT [ARGUMENT ...]."""
    name, script, *_ = sys.argv[1:]
    refuse(globals()[name])
    sys.argv = sys.argv[2:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
