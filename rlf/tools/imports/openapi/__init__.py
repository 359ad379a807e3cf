"""OpenAPI 3 and Swagger 2 documents as tools of kind `http`."""

from rlf.tools.imports.openapi.operations import read_operations

__all__ = ["read_operations"]
