"""The command ``python -m fedgo.beyond NAME``, which plays the runs that the table of the study NAME lacks.

It is for all studies, of the paper and beyond it. With ``--check`` it plays some runs again and compares them with the
table instead.
"""

from fedgo._checks import extra

with extra("experiments"):
    from fedgo.beyond.evidence.studies import STUDIES
    from fedgo.experiments.__main__ import run_or_check

if __name__ == "__main__":
    run_or_check("fedgo.beyond", STUDIES)
