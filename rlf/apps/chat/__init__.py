"""A conversation with a model whose tools run."""
