"""The ladder: `rlf climb` takes a model up from the cheapest way to teach it, and stops where it is good enough."""
