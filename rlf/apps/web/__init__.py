"""`rlf web`: pages and `/api/v1` over the functions that commands call, without logic of their own.

Each area of the page is a module here, with its routes; its templates are in `templates/AREA/`.
"""
