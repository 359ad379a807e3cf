"""What commands show of a spec's chat format."""
