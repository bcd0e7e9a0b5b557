"""This package has the commands of `python -m bluefog_pg`, and the log of groups' operations."""
