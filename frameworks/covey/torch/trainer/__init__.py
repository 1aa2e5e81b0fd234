"""How a method of the core's trainer trains the parameters of torch's optimizer. Internal.

``core_trainer`` makes the calls, ``actions`` does what the core asks for in between; the other
files are what these work on. All this knows no method (``tests/tidy/adapters.py``).
"""
