"""The lineage of runs: tables, the store they live in, the recorder that writes and the reader that reads.

Importing the package loads no database library.
"""
