"""Acknowledgements, negative acknowledgements and acknowledgement timeouts."""
