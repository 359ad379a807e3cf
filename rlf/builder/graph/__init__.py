"""The offline builder: seeded worlds, graphs of relations, tools from a grammar."""
