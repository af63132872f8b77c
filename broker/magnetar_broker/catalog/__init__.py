"""The catalog: which tenants, namespaces and partitioned topics exist, and what may be created.

catalog.py                answers what may be created, from the parts below
├── tenants.py                tenants, which own namespaces
├── namespaces.py             namespaces and their policies
├── partitioned_topics.py     the number of partitions of a topic
├── clusters.py               the clusters that policies may name
├── topic_limit.py            the maximum number of topics in a namespace
└── catalog_nodes.py          the nodes of the metadata store that hold all of this
policies.py               which values of policies are valid, and how they are changed
applied_policies.py       the policies that apply to a topic: its own, else its namespace's, else the settings
policy_settings.py        the settings that a policy replaces
namespace_lease_store.py  leases on namespaces
"""
