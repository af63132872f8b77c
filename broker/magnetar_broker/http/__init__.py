"""What a broker answers over HTTP: its health, and its numbers."""
