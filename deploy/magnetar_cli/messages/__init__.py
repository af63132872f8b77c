"""Publish, receive and show messages on the command line."""
