"""LOCK.ONCE, and the ways that people use without it."""
