"""The SDK's own threads, and what passes items between them and the application's."""
