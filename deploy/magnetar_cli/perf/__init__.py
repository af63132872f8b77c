"""`magnetar perf`: measure throughput and latency of publishing and receiving."""
