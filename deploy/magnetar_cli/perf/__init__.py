"""`magnetar perf`: how much goes through, and how long it takes."""
