"""The locks in frameworks. Each module imports its framework, and is imported only by those that use it."""
