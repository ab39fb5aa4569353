"""The application that the examples of Spark's registry name by reference."""
