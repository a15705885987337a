"""Adapters: each maps one cloud's API, its errors included, onto the ``Provider`` port.

Adding a provider = a folder here, one line in ``registry.py``, one subclass of
``tests/providers/contract.py``.
"""
