"""The parts of the op case table; tools/goldens_ops.py puts them together."""
