"""`spark.utils`: importing by reference."""
