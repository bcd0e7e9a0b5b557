"""What every other room builds on: the compiled module, a rank's groups, and common checks."""
