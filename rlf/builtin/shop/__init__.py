"""A small shop: a SQLite database, and questions about it with the queries and the rows that answer them.

`builtin:shop/database`, `builtin:shop/train`, `builtin:shop/heldout`; `train_shuffled` and `heldout_shuffled` are
controls that have the query of another question.
"""
