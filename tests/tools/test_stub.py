"""The committed stub of the compiled module says what the module has."""

import subprocess
import sys
from pathlib import Path

import pytest

# pybind11 gives these to every class, and no stub can say them.
PYBIND11 = """
bluefog_pg._C.BatchWork
bluefog_pg._C.Edges
bluefog_pg._C.Match
bluefog_pg._C.Edges.__init__
bluefog_pg._C.Exclusion
bluefog_pg._C.PmixClient
bluefog_pg._C.AcceleratorWork
bluefog_pg._C.AcceleratorWork.__init__
bluefog_pg._C.ProcessGroupBluefog
bluefog_pg._C.ProcessGroupComposed
bluefog_pg._C.ProcessGroupBluefog.Options
bluefog_pg._C.SentTo
bluefog_pg._C.SentTo.__init__
bluefog_pg._C.SlotState
bluefog_pg._C.SlotState.__init__
bluefog_pg._C.Meeting
bluefog_pg._C.Meeting.__init__
bluefog_pg._C.MessageKernels
bluefog_pg._C.ProcessGroupReconfigurable
bluefog_pg._C.WriteWatch
bluefog_pg._C.TensorWindow
bluefog_pg._C.WindowWork
bluefog_pg._C.WindowWork.__init__
bluefog_pg._C.WorkBluefog
bluefog_pg._C.WorkBluefog.__init__
"""


# Signatures have types of torch, which are compared all the same. Checking torch itself would take
# three times as long.
CONFIG = """
[mypy]
[mypy-torch.*,numpy.*,networkx.*]
follow_imports = skip
"""

# The loader chooses the module's file, which an import statement does not find.
STUBTEST = """
import sys
from bluefog_pg import _C
from mypy.stubtest import main
sys.exit(main())
"""


@pytest.mark.thorough
def test_stub_agrees_with_the_module_when_checked_by_stubtest(tmp_path: Path) -> None:
    allowed, config = tmp_path / "allowed", tmp_path / "mypy.ini"
    allowed.write_text(PYBIND11)
    config.write_text(CONFIG)
    options = ["--allowlist", str(allowed), "--mypy-config-file", str(config)]
    checked = subprocess.run(
        [sys.executable, "-c", STUBTEST, "bluefog_pg._C", *options],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
