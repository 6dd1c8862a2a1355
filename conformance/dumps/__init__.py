"""Comparing two runs of one net, blob by blob: where do they part, and which of them is wrong there?

``reading`` reads what ``refcaffe dump`` or another engine wrote (docs/compare.md); ``structure`` says which layer takes
and gives what; ``rules`` has a formula with an error bound for every layer type, those of ``conformance.bounds`` among
them; ``steps`` applies them to one layer; ``walk`` goes through both runs, forward and then backward, and ``show``
tells what it found.
"""
