"""Tools and worlds behind servers of others, MCP's and OpenEnv's: sessions, requests, and what they answer."""
