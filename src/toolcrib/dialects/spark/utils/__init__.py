"""What Spark keeps beside its tools: importing by reference."""
