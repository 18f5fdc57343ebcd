"""When GKE may upgrade the cluster, in the form its API takes."""

from datetime import UTC, datetime, timedelta

from infra.config.maintenance import Maintenance, Window
from infra.gke.args import Args

_FIRST = datetime(2026, 1, 5, tzinfo=UTC)
"""A window recurs from a first one on. Its date tells nothing, and must not change."""

ALWAYS = Window(days=("MO", "TU", "WE", "TH", "FR", "SA", "SU"), start="00:00", hours=24)
"""What GKE does without a window: its API takes no exclusion without one."""


def policy(maintenance: Maintenance) -> Args:
    """Nothing for a stack that leaves it to GKE."""
    if maintenance.window is None and not maintenance.exclusions:
        return {}
    return {
        "maintenance_policy": {
            "recurring_window": _recurring(maintenance.window or ALWAYS),
            "maintenance_exclusions": [
                {
                    "exclusion_name": exclusion.name,
                    "start_time": exclusion.start,
                    "end_time": exclusion.end,
                    "exclusion_options": {"scope": "NO_UPGRADES"},
                }
                for exclusion in maintenance.exclusions
            ],
        }
    }


def _recurring(window: Window) -> Args:
    hour, minute = (int(part) for part in window.start.split(":"))
    start = _FIRST.replace(hour=hour, minute=minute)
    return {
        "start_time": _rfc3339(start),
        "end_time": _rfc3339(start + timedelta(hours=window.hours)),
        "recurrence": f"FREQ=WEEKLY;BYDAY={','.join(window.days)}",
    }


def _rfc3339(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")
