"""What a bookie stores: `interface.py` defines it, `rocksdb/` implements it on a disk."""
