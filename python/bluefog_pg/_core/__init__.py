"""This package has what all others build on: the compiled module, groups, and common checks."""
