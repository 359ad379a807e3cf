"""Trackers in the core; those that rlf brings stand in the app `trackers`."""
