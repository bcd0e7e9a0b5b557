"""This program tries a wheel in fresh environments: `python3 test.py dist/bluefog_pg-...whl ...`.

Each environment has one of the torches, and no compiler on its PATH. The wheel for the running
Python is taken. build/wheel-test/summary.md has the time from `pip install WHEEL` to the first
average of two ranks, and by how much `import torch` takes longer then.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
import venv
import zipfile
from pathlib import Path

import torches

ROOT = torches.ROOT
FOLDER = ROOT / "build" / "wheel-test"
COMPILERS = ("cc", "c++", "c89", "c99", "cpp", "g++", "gcc", "clang", "cmake", "ninja", "nvcc")
FIRST = """
import torch, torch.distributed as dist
dist.init_process_group("bluefog")
import bluefog_pg
x = bluefog_pg.neighbor_allreduce(torch.full((3,), float(dist.get_rank())))
assert x.tolist() == [0.5] * 3, x
dist.destroy_process_group()
"""
# Torch calls this function at the end of `import torch`, unless the environment forbids it.
BACKENDS = """
import statistics, subprocess, sys
ONCE = "import time, torch; start = time.process_time(); torch._import_device_backends(); " \
    "print(time.process_time() - start)"
took = [float(subprocess.check_output([sys.executable, "-c", ONCE])) for _ in range(5)]
print(1000 * statistics.median(took))
"""
TOO_NEW = """
import torch.version
torch.version.__version__ = "2.99.0"
import bluefog_pg
try:
    bluefog_pg.ProcessGroupBluefog
except ImportError as error:
    print(error)
"""
TESTS = """
collectives/test_tensor_forms.py neighbors/test_allreduce.py neighbors/test_pair_gossip.py
windows/test_create_free.py
""".split()
NEEDED_BY_TESTS = ("expecttest", "hypothesis", "pytest>=8", "pytest-timeout", "pytest-xdist")
HEAD = """\
| torch | installed after | first average after | `import torch` takes longer by | tests |
| --- | ---: | ---: | ---: | --- |"""
MOST_SECONDS = 20
MOST_MEGABYTES = 10


def without_compilers() -> Path:
    """Return a folder with the system's programs but for compilers."""
    folder = FOLDER / "bin"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for program in [*Path("/bin").iterdir(), *Path("/usr/bin").iterdir()]:
        name = program.name.removeprefix(f"{os.uname().machine}-linux-gnu-")
        if name.split("-")[0] not in COMPILERS and not (folder / program.name).is_symlink():
            (folder / program.name).symlink_to(program)
    return folder


class Environment:
    """An Environment is a virtual one without compilers, and may have what others have, too."""

    def __init__(self, place: Path, programs: Path, others: tuple[Path, ...] = ()) -> None:
        if not (place / "pyvenv.cfg").exists():
            venv.create(place, with_pip=True)
        self.python = place / "bin" / "python3"
        (self.packages,) = place.glob("lib/python3*/site-packages")
        (self.packages / "others.pth").write_text("".join(f"{other}\n" for other in others))
        drop = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "CC", "CXX")
        self.environ = {name: value for name, value in os.environ.items() if name not in drop}
        self.environ |= {"PATH": f"{self.python.parent}:{programs}", "OMP_NUM_THREADS": "1"}

    def run(self, *arguments: str | Path, cwd: Path = FOLDER) -> str:
        command = [self.python, *arguments]
        done = subprocess.run(command, env=self.environ, cwd=cwd, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(map(str, command))}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def milliseconds_for_backends(self) -> float:
        """Return what torch needs to import the backends of this environment."""
        self.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
        took = float(self.run("-c", BACKENDS))
        del self.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"]
        return took

    def install(self, *what: str | Path) -> None:
        self.run("-m", "pip", "install", "--quiet", *what)


def try_beside(version: str, wheels: list[Path], programs: Path) -> tuple[float, str]:
    """Try the wheels beside this torch; return the seconds to the first average, and a row."""
    # Torch takes gigabytes, so its own environment is kept, and the fresh one looks into it.
    base = Environment(FOLDER / f"torch-{version}", programs)
    if not (base.packages / "torch").exists():
        try:
            base.install(f"torch=={version}+cpu")
        except SystemExit:
            base.install(f"torch=={version}")
    shutil.rmtree(FOLDER / "fresh", ignore_errors=True)
    fresh = Environment(FOLDER / "fresh", programs, (base.packages,))
    # The first import of all reads gigabytes from the disk.
    before = fresh.milliseconds_for_backends()

    start = time.monotonic()
    fresh.install(*wheels)
    installed = time.monotonic() - start
    (FOLDER / "first.py").write_text(FIRST)
    fresh.run("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "first.py")
    averaged = time.monotonic() - start
    cost = fresh.milliseconds_for_backends() - before
    doctor = fresh.run("-m", "bluefog_pg", "--timeout", "60")
    assert doctor.count("right results") == 2, doctor  # in shared memory, and over Open MPI
    sentence = fresh.run("-c", TOO_NEW)
    assert "2.99.0 is installed; run: pip install 'torch==" in sentence, sentence

    # The tests are copied, so that they import the installed package and not the clone's.
    shutil.rmtree(FOLDER / "clone", ignore_errors=True)
    shutil.copytree(ROOT / "tests", FOLDER / "clone" / "tests")
    shutil.copy(ROOT / "pyproject.toml", FOLDER / "clone")
    fresh.install(*NEEDED_BY_TESTS)
    tests = [f"tests/{name}" for name in TESTS]
    told = fresh.run("-m", "pytest", "-q", "-m", "not slow", *tests, cwd=FOLDER / "clone")
    where = fresh.run("-c", "import bluefog_pg; print(bluefog_pg.ProcessGroupBluefog, "
                            "bluefog_pg._C.__file__)")  # fmt: skip
    assert str(fresh.packages) in where, where
    if any("cuda13" in wheel.name for wheel in wheels):
        kernels = fresh.run("-c", "from bluefog_pg._core.accelerator import _own_plugin; "
                                  "print(_own_plugin('cuda'))").strip()  # fmt: skip
        assert Path(kernels) == fresh.packages / "bluefog_pg_cuda13/libbluefog_cuda.so", kernels
    print(doctor, sentence, where, told, sep="\n")
    passed = told.splitlines()[-1].split(" in ")[0]
    row = f"| {version} | {installed:.1f} s | {averaged:.1f} s | {cost:.1f} ms | {passed} |"
    return averaged, row


def check_content(wheel: Path) -> None:
    """Check that the wheel is small, and has a module for each torch and all that is loaded."""
    size = wheel.stat().st_size / 1e6
    assert size <= MOST_MEGABYTES, f"{wheel} has {size:.1f} MB"
    with zipfile.ZipFile(wheel) as file:
        compiled = {Path(name).name.split(".cpython")[0] for name in file.namelist()}
    if "-py3-" in wheel.name:
        expected = {"libbluefog_cuda.so"}
    else:
        minors = (version.rpartition(".")[0] for version in torches.VERSIONS)
        expected = {"bluefog-pmixd", *(f"_C.torch{minor}" for minor in minors)}
    assert expected <= compiled, expected - compiled


def main(files: list[str]) -> None:
    programs = without_compilers()
    tag = f"-cp{sys.version_info[0]}{sys.version_info[1]}-"
    wheels = [Path(file).resolve() for file in files]
    wheels = [wheel for wheel in wheels if tag in wheel.name or "-py3-" in wheel.name]
    for wheel in wheels:
        check_content(wheel)
    told = [try_beside(version, wheels, programs) for version in torches.VERSIONS]
    summary = "\n".join([HEAD, *(row for _, row in told)])
    (FOLDER / "summary.md").write_text(f"{summary}\n")
    print(summary)
    if max(seconds for seconds, _ in told) > MOST_SECONDS:
        raise SystemExit(f"the first average must come within {MOST_SECONDS} s of an idle machine")


if __name__ == "__main__":
    main(sys.argv[1:])
