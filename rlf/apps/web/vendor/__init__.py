"""Browser code that others wrote, and how it is made."""
