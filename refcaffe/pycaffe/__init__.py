"""What pycaffe offers beyond nets, blobs and solvers.

The modules are reached by pycaffe's names: ``refcaffe.io``, ``refcaffe.draw``, ``refcaffe.Classifier`` ...
"""
