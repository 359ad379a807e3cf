"""Where a run's metrics go beside the lineage: `report_to:` of a spec. Nothing here is read back by rlf."""

from rlf.trackers.tracker import TRACKERS, TrackedRun, Tracker, TrackerWriter, metrics_of

__all__ = ["TRACKERS", "TrackedRun", "Tracker", "TrackerWriter", "metrics_of"]
