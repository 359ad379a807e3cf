"""Starting and continuing runs, and what watches over them."""
