"""This package has what starts ranks, lets them find each other, and tells them who they are."""
