"""Advantage estimators of single papers: one file each, chosen by `train.algorithm`."""
