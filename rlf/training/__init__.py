"""The rules of a step that every engine shares: what is collected, what counts, what is learnt from, what is reported.

No model is loaded or run here: an engine brings a policy and an update.
"""
