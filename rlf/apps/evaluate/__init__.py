"""Evaluations of runs, models and endpoints outside of training."""
