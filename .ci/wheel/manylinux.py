"""This program makes libraries to link with, so that the result runs on any manylinux_2_28 system.

`python3 manylinux.py FOLDER` prints the LDFLAGS. It needs g++ and binutils, on a Linux with a newer
glibc. Where the image of manylinux_2_28 is at hand, none of this is needed. The libraries have the
same symbols as the system's, but in the versions of glibc 2.28 and of GCC 8's libstdc++. What is
missing there comes from libstdc++.a, old_libraries.c and old_start.c, and stays hidden.
docs/decisions/0047-one-wheel-for-three-torches.md says why this holds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

NEWEST = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11)}
# glibc 2.34 has moved these into libc.so.6: a symbol whose version that move has changed lay in the
# first library whose pattern fits.
MOVED = {
    "libdl.so.2": r"dl(?!_iterate)",
    "librt.so.1": r"aio_|lio_|mq_|shm_|timer_",
    "libpthread.so.0": r"",
}
WRAPPED = ("__libc_start_main",)  # old_start.c has these, and calls the library's
STUBBED = ("libc.so.6", "libm.so.6", "libstdc++.so.6", "ld-linux-x86-64.so.2")
KINDS = {
    ".text": (".text", "function"),
    ".tbss": ('.section .tbss,"awT",@nobits', "tls_object"),
    ".tdata": ('.section .tbss,"awT",@nobits', "tls_object"),
}
LINE = re.compile(
    r"(?P<address>[0-9a-f]{16}) (?P<flags>.{7}) (?P<section>\S+)\s+(?P<size>[0-9a-f]{16})"
    r"\s+\(?(?P<version>[^\s)]+)\)?\s+(?:0x\S+ )?(?P<name>\S+)"
)


class Symbol(NamedTuple):
    section: str
    address: int
    size: int
    version: str
    name: str


def run(*command: str | Path, stdin: str = "") -> str:
    return subprocess.run(command, input=stdin, check=True, text=True, capture_output=True).stdout


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def is_old(version: str) -> bool:
    family = version.split("_")[0]
    return family in NEWEST and () < number(version) <= NEWEST[family]


def library(name: str) -> Path:
    return Path(run("g++", f"-print-file-name={name}").strip()).resolve()


def symbols(file: Path) -> tuple[list[Symbol], set[str]]:
    """Return each symbol in its newest old version, and the names that have newer versions, too."""
    old: dict[str, Symbol] = {}
    renewed = set()
    for line in run("objdump", "-T", file).splitlines():
        found = LINE.match(line)
        if found is None or found["section"] in ("*UND*", "*ABS*"):
            continue
        name, version = found["name"], found["version"]
        if not is_old(version):
            renewed.add(name)
        elif name not in old or number(old[name].version) < number(version):
            is_function = found["flags"].endswith(("F", "i"))
            section = ".text" if is_function else found["section"]
            place, size = int(found["address"], 16), int(found["size"], 16)
            old[name] = Symbol(section, place, size, version, name)
    return list(old.values()), renewed


def make_stub(folder: Path, soname: str, content: list[Symbol]) -> None:
    lines = []
    for (section, place), group in groupby(sorted(content), key=itemgetter(0, 1)):
        # Names of one object must stay names of one object: a program that copies it needs that.
        same = list(group)
        begin, kind = KINDS.get(section, (".bss", "object"))
        lines += [begin, ".balign 32"]
        for i, each in enumerate(same):
            label = f"at_{kind}_{place}_{i}"
            at = "@" if each.name in WRAPPED else "@@"
            lines += [f".globl {label}", f".type {label}, @{kind}", f".size {label}, {each.size}"]
            lines += [f'{label}: .symver {label}, "{each.name}{at}{each.version}", remove']
        lines.append(f".zero {1 if kind == 'function' else max(1, *(s.size for s in same))}")
    script = folder / f"{soname}.versions"
    script.write_text("".join(f"{version} {{ }};\n" for version in {s.version for s in content}))
    run("g++", "-shared", "-nostdlib", f"-Wl,-soname,{soname},--version-script={script}",
        "-o", folder / soname, "-x", "assembler", "-", stdin="\n".join(lines) + "\n")  # fmt: skip


def missing(file: Path) -> list[str]:
    """Return the symbols that the file needs from the system's libraries, but in no version.

    A module may be linked although symbols are missing. Those work on this system alone.
    """
    ours = {name for soname in STUBBED for name in run_nm(library(soname), "--defined-only")}
    return sorted(ours.intersection(run_nm(file, "--undefined-only")))


def run_nm(file: Path, which: str) -> set[str]:
    names = {line.split()[-1] for line in run("nm", "-D", "--no-weak", which, file).splitlines()}
    return {name.split("@")[0] for name in names} if which == "--defined-only" else names


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for soname in STUBBED:
        content, renewed = symbols(library(soname))
        if soname == "libc.so.6":
            moved = {each for each in content if each.name in renewed}
            for old_home, pattern in MOVED.items():
                here = {each for each in moved if re.match(pattern, each.name)}
                moved -= here
                content = [each for each in content if each not in here]
                make_stub(folder, old_home, list(here))
        make_stub(folder, soname, content)

    for source in ("old_libraries", "old_start"):
        run("gcc", "-c", "-O2", "-fPIC", "-fvisibility=hidden", "-o", folder / f"{source}.o",
            Path(__file__).with_name(f"{source}.c"))  # fmt: skip
        run("ar", "rcs", folder / "libold.a", folder / f"{source}.o")
    ours = folder / "libold.a"
    rest = " ".join(str(folder / name) for name in (*MOVED, STUBBED[-1]))
    libc = f"{folder}/libc.so.6 {ours} {library('libc_nonshared.a')} AS_NEEDED({rest})"
    (folder / "libc.so").write_text(f"INPUT({libc})")
    (folder / "libm.so").write_text(f"INPUT({folder}/libm.so.6)")
    archive = library("libstdc++.a")
    (folder / "libstdc++.so").write_text(f"INPUT({folder}/libstdc++.so.6 {ours} {archive})")
    # The system's libgcc_s needs newer symbols. Late binding fails: ld 2.40 may leave an empty
    # place in its table where an archive has what a library had, too.
    print(f"-B{folder}/ -Wl,--exclude-libs,ALL,--allow-shlib-undefined,-z,now")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
