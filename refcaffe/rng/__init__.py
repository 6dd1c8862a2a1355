"""Random numbers as Caffe draws them on the CPU (Boost's distributions on mt19937), bit for bit, in NumPy."""

from refcaffe.rng.stream import Stream, nextafter

__all__ = ["Stream", "nextafter"]
