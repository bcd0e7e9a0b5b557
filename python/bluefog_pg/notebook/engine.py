"""This program is an engine of ipyparallel whose number is its rank.

Its arguments are those of `ipengine`.
"""

from __future__ import annotations

import os
import sys

from bluefog_pg.notebook.needed import ipyparallel


def main() -> None:
    ipyparallel()
    from ipyparallel.engine.app import IPEngine

    IPEngine.launch_instance([*sys.argv[1:], f"--IPEngine.id={os.environ['RANK']}"])


if __name__ == "__main__":
    main()
