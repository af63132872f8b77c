"""Interceptors of the application, and what calls them."""
