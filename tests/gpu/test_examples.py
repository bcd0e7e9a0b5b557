"""Two ranks that share the GPU run the examples with --device cuda, by torchrun."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.gpu import kernels
from tests.gpu.ranks import DEVICE
from tests.support.examples import EXAMPLES
from tests.support.programs import TORCHRUN, run_script

pytestmark = kernels.on_cuda
# NCCL takes each rank to be on a host of its own.
APART = 'export NCCL_HOSTID=$RANK; exec "$0" "$@"'
CALLS = {
    "train_digits.py": "--mode neighbor_allreduce --epochs 10 --require-accuracy 0.8",
    "async_training.py": "--seconds 4",
    "average_consensus.py": "--seconds 2",
    "decentralized_optimization.py": "--steps 100",
}


@pytest.mark.parametrize("example", CALLS)
def test_examples(tmp_path: Path, example: str) -> None:
    torchrun = [*TORCHRUN, "--standalone", "--nproc-per-node=2"]
    program = [sys.executable, str(EXAMPLES / example), *CALLS[example].split(), "--device", DEVICE]
    command = [*torchrun, "--no-python", "bash", "-c", APART, *program]
    ran = run_script(command, env={"NCCL_SOCKET_IFNAME": "lo"}, cwd=tmp_path)
    assert ran.code == 0, ran.out
