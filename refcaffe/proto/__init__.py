"""Caffe's messages: the schema, and text and binary files of them.

Read in this order: ``caffe.proto`` (the schema, compiled by ``compile.py``), ``caffe_pb2.py`` (its
classes), ``text_tokens.py`` and ``text_parser.py`` (the text format in), ``text_printer.py`` (the
text format out), ``io.py`` (files).
"""
