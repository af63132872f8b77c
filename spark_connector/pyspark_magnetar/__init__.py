"""The package by which Spark finds the format `magnetar` without registration.

Spark imports each installed package whose name begins with `pyspark_`, and registers its `DefaultSource`.
"""

from magnetar_spark.source import MagnetarDataSource as DefaultSource

__all__ = ["DefaultSource"]
