"""What Spark looks for by itself: a package named `pyspark_…` with a `DefaultSource`, so `.format("magnetar")` works
wherever this is installed."""

from magnetar_spark.source import MagnetarDataSource as DefaultSource

__all__ = ["DefaultSource"]
