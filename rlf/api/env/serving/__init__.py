"""A spec's world for other programs' clients: as an OpenEnv server, and as an MCP server."""
