"""The commands of rlf for MCP clients, such as coding agents."""
