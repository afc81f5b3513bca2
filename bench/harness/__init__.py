"""What the scripts of `bench` share: the program, the machine, slices, reports.

Needs Python 3.9 and its standard library only; `chart` draws if matplotlib is there.
"""
