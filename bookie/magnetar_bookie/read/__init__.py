"""Reads entries of ledgers whose fragments are known, without a metadata store, a fence or a recovery."""
