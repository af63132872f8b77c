"""Leases keep planned messages from being deleted while they are read (broker/magnetar_broker/protocol.md, Leases).

lease.py              a lease's id and time, and requests that take leases
lease_renewals.py     renews leases at intervals
stream_leases.py      a stream's leases on its partitions, which its driver renews
namespace_leases.py   a stream's leases on topics that are created while it runs
batch_lease.py        a batch's leases, which its tasks renew
"""
