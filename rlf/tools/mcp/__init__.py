"""MCP servers: how they are declared and listed."""
