"""What keeps ledgers whole when bookies die: auditor, workers, decommissioning, sweeping of orphans."""
