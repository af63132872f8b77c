"""Auto-recovery restores the replicas of ledgers whose bookies are lost. Import from the modules.

auto_recovery.py            what runs beside each bookie: a replication worker, and a candidate for auditor
auditor_election.py         which process is the auditor
auditor.py                  finds underreplicated ledgers, and finishes deletions and decommissions
    auditor_rules.py        which ledgers need a repair, and when a closed ledger is checked
    ledger_checker.py       compares closed ledgers with their bookies' inventories
    unclaimed_ledgers.py    deletes ledgers that no owner claimed
underreplicated_ledgers.py  the repair tasks in the metadata store, and their locks
replication_worker.py       takes repair tasks, one at a time
    ledger_repair.py        repairs one ledger
    ledger_repair_rules.py  plans the repair
    fragment_replicator.py  copies the entries that a bookie lacks
    replica_reader.py       reads them from other replicas
    inventory.py            which entries a bookie lacks
limbo_repair.py             restores what a bookie's own disk may have lost
decommission.py             starts, counts, finishes and cancels a decommission
decommission_check.py       whether enough bookies are left for it
bookie_watcher.py           which bookies are registered, writable, decommissioned
    lost_bookies.py         which of them are lost, and since when
ledger_nodes.py             reads the metadata of all ledgers
bookie_overview.py, ledger_overview.py  what commands show
wakeup_event.py             a wait that ends early
errors.py                   the errors

`protocol.md` in the folder above has the rules ("Auto-recovery").
"""
