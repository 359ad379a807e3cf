"""A spec's world for clients of others: as an OpenEnv server, and as an MCP server."""
