"""Runs: started, resumed, forked, swept, and looked at; commands, `import rlf` and the page call these functions."""
