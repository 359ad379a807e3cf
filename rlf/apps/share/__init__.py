"""Runs and models for others: exports, archives, tables, pages."""
