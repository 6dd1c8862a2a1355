"""Recorded cases of original Caffe, run on an engine and compared by exactness class.

A case is a folder (``fixtures/FORMAT.md``). ``kinds`` holds one small runner per kind of case: ``play`` carries out
what is given, on any engine, and ``judge`` compares what came out with the recording. ``engines`` holds the engines.
"""
