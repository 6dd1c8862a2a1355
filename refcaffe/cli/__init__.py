"""The ``refcaffe`` command: Caffe's own commands and flags, and what people expect today."""
