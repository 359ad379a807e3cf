"""One file per chat format; the file name is the YAML `chat.format`."""
