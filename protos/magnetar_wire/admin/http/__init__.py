"""How admin calls look on HTTP: routes, and answers that are not JSON."""
