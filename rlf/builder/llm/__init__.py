"""The builder with a language model: five stages, each validated, what it writes run before it is kept."""
