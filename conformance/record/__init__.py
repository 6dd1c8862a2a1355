"""Recording cases anew from an original Caffe that the user has.

``record_pycaffe.py`` runs by itself under that Caffe's Python; the programs in ``cpp`` are built against its library.
``command`` leads both and Caffe's own programs; ``suite`` plays the kinds that pycaffe does not reach.
"""
