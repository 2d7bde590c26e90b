"""Settings, one file per mechanism."""

from crabpath_retrievers.config.learning import (
    APPLY,
    EpisodeSettings,
    LearningSettings,
    NoteSettings,
    RegionSettings,
)
from crabpath_retrievers.config.operation import (
    AutotuneSettings,
    HealthSettings,
    MaintenanceSettings,
)
from crabpath_retrievers.config.settings import (
    DateSettings,
    IngestSettings,
    LinkSettings,
    PolicySettings,
    PrefixSettings,
    RankSettings,
    SeedSettings,
    Settings,
    SyncSettings,
    TierSettings,
    WalkSettings,
)

__all__ = [
    "APPLY",
    "AutotuneSettings",
    "DateSettings",
    "EpisodeSettings",
    "HealthSettings",
    "IngestSettings",
    "LearningSettings",
    "LinkSettings",
    "MaintenanceSettings",
    "NoteSettings",
    "PolicySettings",
    "PrefixSettings",
    "RankSettings",
    "RegionSettings",
    "SeedSettings",
    "Settings",
    "SyncSettings",
    "TierSettings",
    "WalkSettings",
]
