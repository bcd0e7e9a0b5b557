"""python -m bluefog_pg: what this machine can do, and whether it works."""

from __future__ import annotations

import argparse

from bluefog_pg import _doctor


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m bluefog_pg",
        description="Say what this machine offers to bluefog_pg, and try it with two ranks.",
    )
    parser.add_argument("--no-test", action="store_true", help="start no ranks")
    args = parser.parse_args()
    raise SystemExit(0 if _doctor.report(tries=not args.no_test) else 1)


if __name__ == "__main__":
    main()
