"""Every bound of the paper's analysis with explicit constants, as printed and, where that is wrong, repaired.

Here are the names that the book writes as ``theory.radius``; code imports from the modules.
"""

# ruff: noqa: F401

from fedgo.theory.assumptions import Assumptions
from fedgo.theory.confidence import (
    information_bound,
    radius,
    radius_printed,
)
from fedgo.theory.phase_one import (
    C_DISTANCE,
    C_NET,
    C_RISK,
    covering,
    exploration_needed,
    finite_risk,
    finite_risk_printed,
    growth_limit,
    iota,
    optimisation_error,
    phase_one_scalars,
    regression_risk,
    regression_risk_printed,
    squared_distance,
    squared_distance_printed,
)
from fedgo.theory.phase_two import (
    LARGEST_INCREMENT,
    bad_regret_printed,
    excess_first_order,
    excess_in_ball,
    excess_printed,
    good_regret_printed,
    phase_two_scalars,
    potential_clipped,
    regret_phase_one,
    regret_phase_two_clipped,
    synchronisations,
    synchronisations_printed,
)
from fedgo.theory.theorem import (
    Premises,
    both_theorems,
    horizon_needed,
    theorem,
    theorem_error_printed,
    theorem_printed,
    theorem_setting,
    theorem_setting_printed,
    worst_case,
)
from fedgo.theory.worlds import single_unit, single_unit_assumptions
