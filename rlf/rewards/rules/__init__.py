"""Rules by name; each file holds the options of one `rule` and its formula."""
