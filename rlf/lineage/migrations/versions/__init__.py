"""The revisions, in order. A released one is never edited."""
