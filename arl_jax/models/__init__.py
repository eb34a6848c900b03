"""Transformers, their weights, caches and decoding steps."""
