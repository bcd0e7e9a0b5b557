"""This package has `python -m bluefog_pg bench`: gloo beside bluefog, and synthetic trainings."""
