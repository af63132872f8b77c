"""The admin calls of a broker: admin_service.py serves them, and `*_calls.py` has the handlers."""
