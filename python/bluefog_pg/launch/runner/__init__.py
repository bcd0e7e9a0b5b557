"""This package starts the ranks of a program on one host or several, and says how they ended."""
