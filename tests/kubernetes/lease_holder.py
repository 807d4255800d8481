"""Holds the lease of an endpoint, and writes a ConfigMap of its when told what: a process of test_fenced.py.

`python lease_holder.py NAMESPACE SECONDS`, with what is to be written as lines; a line says what came of each.
"""

from __future__ import annotations

import sys
import time

from manifests import config_map

from toolkit.errors import PlatformError
from toolkit.platforms.kubernetes.execute import Objects
from toolkit.platforms.kubernetes.lease import ClusterLease
from toolkit.platforms.kubernetes.session import SESSION
from toolkit.platforms.lease import Rules, lease

namespace, seconds = sys.argv[1], float(sys.argv[2])
cluster = SESSION.open(f"/{namespace}").cluster
store = ClusterLease(cluster, "chat", time.monotonic, time.sleep, Rules(seconds, seconds / 5, seconds / 10))
with lease("chat", store) as confirm, cluster.confirmed(confirm):
    print("held", flush=True)
    for line in sys.stdin:
        document = {**config_map(line.strip(), namespace=namespace).request, "immutable": False}
        try:
            Objects(cluster).put("ConfigMap", document)
            print("written", flush=True)
        except PlatformError as error:
            print(error.message, flush=True)
