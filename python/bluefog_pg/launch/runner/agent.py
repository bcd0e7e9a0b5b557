"""This program runs the ranks of one host for a bfrun on another one, which reaches it by ssh.

Its input is a line with the Share, and then nothing; the ranks are stopped when the input ends. A
line of its output that begins with MARK says how a rank has ended. All others are the ranks'.
"""

from __future__ import annotations

import os
import sys
import threading

from bluefog_pg.launch.runner.share import Share

MARK = "\x1e"
POLL_EVERY = 0.05  # seconds


def main() -> None:
    share = Share.decode(sys.stdin.readline())
    # The environment must be there before torch is imported.
    os.environ.update(share.environ)
    from bluefog_pg.launch.runner.local_ranks import LocalRanks

    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    try:
        ranks = LocalRanks(share)
    except (OSError, ValueError) as error:
        raise SystemExit(f"bfrun: {os.uname().nodename}: {error}") from error
    is_over = threading.Event()
    threading.Thread(target=_await_end, args=(is_over,), daemon=True).start()
    try:
        while ranks.running() and not is_over.wait(POLL_EVERY):
            for ended in ranks.poll():
                sys.stdout.write(f"{MARK}{ended.encode()}\n")
    finally:
        ranks.stop()


def _await_end(is_over: threading.Event) -> None:
    sys.stdin.read()
    is_over.set()


if __name__ == "__main__":
    main()
