"""Golden data for the C tests. tools/goldens.py is the command; each module here makes one part."""
