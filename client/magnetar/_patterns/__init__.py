"""Patterns of topics, and which topics match one."""
