"""The broker's rules, without I/O."""
