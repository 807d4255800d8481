"""Names of LeaderWorkerSet's own (kubernetes-sigs/lws, api/leaderworkerset/v1): labels, and what pods are told."""

from __future__ import annotations

_PREFIX = "leaderworkerset.sigs.k8s.io"
SET_NAME, GROUP_KEY, REVISION = f"{_PREFIX}/name", f"{_PREFIX}/group-key", f"{_PREFIX}/template-revision-hash"
"""Labels of pods: their set, a digest of their group, and one of their version, which also the leaders' StatefulSet
has.
"""

LEADER_ADDRESS, WORKER_INDEX = "LWS_LEADER_ADDRESS", "LWS_WORKER_INDEX"
"""Variables that stand before all others in its containers."""

OLDEST, OLDEST_THAT_SURGES = "0.6", "0.9"
"""Its versions: with the second variable, and with updates that begin though no group may be missing (lws, #778)."""
