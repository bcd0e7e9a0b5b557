"""`import torch` and `import bluefog_pg` cost little, and keep what they promise.

A test that depends on the order of imports starts a new interpreter. A test that makes or changes
something runs it in a fork of a process that has imported torch.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.support.environment import ROOT
from tests.support.forked import in_a_fork

DEADLINE = 60  # seconds
PACKAGE = ROOT / "python" / "bluefog_pg"
IN_LIST = "'bluefog' in torch.distributed.Backend.backend_list"


def run(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `code` in a new interpreter, outside the repository."""
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **env},
        cwd="/",
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def check(code: str, **env: str) -> str:
    """Run `code`, which must succeed and say nothing on stderr; return what it printed."""
    done = run(code, **env)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.fixture
def other_package(tmp_path: Path) -> Path:
    """Return a copy of the package without the compiled module; its parent is for PYTHONPATH."""
    # The finder of an editable install stands before the path.
    shutil.copy(ROOT / "tests/gpu/no_editable.py", tmp_path / "sitecustomize.py")
    ignore = shutil.ignore_patterns("__pycache__", "*.so")
    return Path(shutil.copytree(PACKAGE, tmp_path / "bluefog_pg", ignore=ignore))


@pytest.mark.parametrize(
    ("group", "function"),
    [("torch.backends", "register"), ("torch.distributed.backends", "register_or_raise")],
)
def test_entry_points_are_declared_once(group: str, function: str) -> None:
    # A set is compared, as two finders may list an editable install.
    found = {e.value for e in entry_points(group=group) if e.name == "bluefog"}
    assert found == {f"bluefog_pg._autoload:{function}"}


@pytest.mark.slow
def test_import_torch_registers_and_loads_nothing_heavy() -> None:
    modules = "import sys, torch; print(*sorted(sys.modules))"
    with_us = set(check(f"{modules}; assert {IN_LIST}").split())
    without = set(check(modules, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split())
    # An editable install brings its path finder with it, autoload or not.
    ours = {f"bluefog_pg{name}" for name in ("", "._autoload", "._core", "._core.loader")}
    assert {m for m in with_us - without if m.startswith(("bluefog_pg", "networkx"))} == ours
    assert len(with_us - without - ours) < 10


@pytest.mark.alone
def test_registering_takes_milliseconds() -> None:
    code = """
import os, time, torch
from importlib.metadata import entry_points
for _ in range(5):
    if os.fork() == 0:
        found = entry_points(group="torch.backends")
        ours = next(each for each in found if each.name == "bluefog")
        start = time.thread_time()
        ours.load()()
        print(time.thread_time() - start)
        break
    os.wait()
"""
    times = check(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0").split()
    assert len(times) == 5
    assert min(map(float, times)) < 0.005


@pytest.mark.slow
def test_import_without_autoload_registers() -> None:
    code = f"import torch; assert not {IN_LIST}; import bluefog_pg; assert {IN_LIST}"
    assert check(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ""


@pytest.mark.slow
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_import_before_torch_registers(autoload: str) -> None:
    # bluefog_pg.torch is a submodule's name.
    code = f"""
import bluefog_pg
assert "torch" not in vars(bluefog_pg)
import torch
assert {IN_LIST}
assert callable(bluefog_pg._autoload.register)
"""
    assert check(code, TORCH_DEVICE_BACKEND_AUTOLOAD=autoload) == ""


def registers_twice(_rank: int, _world: int) -> None:
    from bluefog_pg._autoload import register

    first, names = dist.Backend._plugins["BLUEFOG"], list(dist.Backend.backend_list)
    register()
    register.__wrapped__()
    assert dist.Backend._plugins["BLUEFOG"] is first
    assert dist.Backend.backend_list == names


def test_registering_twice_keeps_the_first() -> None:
    in_a_fork(registers_twice)


def test_gloo_stays_the_default_of_the_cpu() -> None:
    assert dist.get_default_backend_for_device("cpu") == "gloo"


@pytest.mark.slow
def test_broken_package_warns_and_leaves_torch_alone(other_package: Path) -> None:
    (other_package / "_core/loader.py").write_text("raise OSError('disk on fire')\n")
    done = run("import torch; print(torch.ones(2).sum())", PYTHONPATH=str(other_package.parent))
    assert (done.returncode, done.stdout) == (0, "tensor(2.)\n")
    assert done.stderr == 'backend "bluefog" is not available: OSError: disk on fire\n'


@pytest.mark.slow
def test_torch_without_distributed_is_left_alone() -> None:
    code = """
import sys, torch.distributed as dist
dist.is_available = lambda: False
del dist.Backend
import bluefog_pg
"""
    assert check(code, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == ""


USE = """
import torch, bluefog_pg
try:
    bluefog_pg.ProcessGroupBluefog
except ImportError as e:
    print(e)
"""
REINSTALL = "pip install --no-build-isolation --force-reinstall --no-deps ."


@pytest.mark.slow
def test_missing_module_is_reported_when_it_is_needed(other_package: Path) -> None:
    printed = check(USE, PYTHONPATH=str(other_package.parent))
    assert printed == f"bluefog_pg._C was not built; run in the clone: {REINSTALL}\n"


def fitting() -> str:
    return ".".join(torch.__version__.split(".")[:2])


def put_module(package: Path, version: str, code: str) -> None:
    """Give the package a module for this minor version of torch."""
    (package / f"_C.torch{version}.py").write_text(code)


@pytest.mark.slow
def test_modules_of_other_torches_are_refused_in_one_sentence(other_package: Path) -> None:
    for version in "2.12", "2.2":
        put_module(other_package, version, "raise SystemError('must not be reached')")
    installed = torch.__version__.split("+")[0]
    assert check(USE, PYTHONPATH=str(other_package.parent)) == (
        f"bluefog_pg._C was built for torch 2.2 and 2.12 but torch {installed} is installed; "
        f"run: pip install 'torch==2.12.*', or build it for this torch, in a clone: {REINSTALL}\n"
    )


@pytest.mark.slow
def test_module_that_fits_is_loaded_once_and_shut_down_at_exit(other_package: Path) -> None:
    put_module(other_package, "2.12", "raise SystemError('must not be reached')")
    put_module(other_package, fitting(), "def shutdown_all(): print('shut down')")
    (other_package / f"_C.torch{fitting()}.cpython-27-of-another-python.so").touch()
    code = """
import sys, bluefog_pg
from bluefog_pg._core.loader import load
assert load() is load() is sys.modules["bluefog_pg._C"] is bluefog_pg._C
"""
    assert check(code, PYTHONPATH=str(other_package.parent)) == "shut down\n"


@pytest.mark.slow
def test_module_that_cannot_be_loaded_leaves_nothing_behind(other_package: Path) -> None:
    put_module(other_package, fitting(), "raise OSError('no disk')")
    code = """
import sys
from bluefog_pg._core.loader import load
for _ in range(2):
    try:
        load()
    except OSError as e:
        print(e, "bluefog_pg._C" in sys.modules)
"""
    assert check(code, PYTHONPATH=str(other_package.parent)) == "no disk False\n" * 2


BY_NAME = """
import torch.distributed as dist
try:
    dist.init_process_group("bluefog", store=dist.HashStore(), rank=0, world_size=1)
    print(dist.get_backend())
except Exception as e:
    print(type(e).__name__, e)
"""
LAZY = pytest.mark.skipif(
    not hasattr(dist.Backend, "_ensure_backend_registered"),
    reason="torch asks for backends by their names from 2.14 on",
)


@LAZY
@pytest.mark.slow
def test_backend_is_found_by_its_name_alone() -> None:
    assert check(BY_NAME, TORCH_DEVICE_BACKEND_AUTOLOAD="0") == "bluefog\n"


@LAZY
@pytest.mark.slow
def test_program_that_names_a_broken_backend_is_told_why(other_package: Path) -> None:
    (other_package / "_core/loader.py").write_text("raise OSError('disk on fire')\n")
    assert run(BY_NAME, PYTHONPATH=str(other_package.parent)).stdout == "OSError disk on fire\n"
