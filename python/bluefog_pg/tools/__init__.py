"""Commands of `python -m bluefog_pg`, and the log of what groups did last."""
