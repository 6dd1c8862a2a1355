"""Nets: filtering, splits, set-up, forward and backward, weights in and out."""

from refcaffe.net.net import Net

__all__ = ["Net"]
