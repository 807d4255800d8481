"""AWS on this machine: the same boto3 calls, answered by moto, a SageMaker service of our own, and real containers.

    boto3 ──> control plane (control)  ── S3, IAM, STS, Logs ──> moto
                   │ SageMaker.*
                   v
              service ── endpoints ── lifecycle                    what exists, and in which state it is
                   │
                   v  host: the seam at which tests put a script instead
              container_host ── deployment ── container ── keeper ── the container's entrypoint
                                                                       ^ /ping, /invocations
    boto3 ──> runtime (gateway) ───────────────────────────────────────┘

All of it is one daemon of the user (`daemon`, `__main__`), which outlives the command that started it. State is in
memory: when the daemon ends, endpoints, models and objects are gone.
"""
