"""Verdicts and regrets beside each other as tables: as tuned, and with other settings or another index (chapter 10)."""

from collections.abc import Iterable, Sequence

from IPython.display import Markdown

from fedgo.experiments import record
from fedgo.experiments.claims import Change, Traces
from fedgo.experiments.comparison import tuned
from fedgo.experiments.summaries import mean_error, paired_difference
from fedgo.experiments.tables import quote, share_of_parts, table
from fedgo.experiments.tuning import STUDIES, in_symbols


def verdicts_compared(changes: Iterable[Change], before: str, after: str) -> Markdown:
    """A row for every claim with its verdicts ``before`` and ``after``, the parts beside each, and whether it stays."""
    rows = []
    for change in changes:
        verdicts = [
            f"{verdict} {share_of_parts([part.holds for part in parts])}"
            for verdict, parts in (change.before, change.after)
        ]
        quoted = f"{change.claim.place}: “{change.claim.quote}”"
        rows.append((quoted, *verdicts, "yes" if change.stable else "**no**"))
    return table(("the paper's words", before, after, "stable"), rows, "llll")


def regrets_compared(traces: Traces, others: Traces, study: str, before: str, after: str) -> Markdown:
    """The mean final regrets ± standard error of ``others``, chosen by the ``study``, beside those of ``traces``."""
    rows = []
    for name, of in others.items():
        for a, trace in of.items():
            one = traces[name][a]
            cells = []
            for part, setting in ((one, tuned(name, a)), (trace, tuned(name, trace.algorithm, study))):
                mean, error = mean_error(part.cumulative_regret[:, -1])
                cells.append(f"{mean:,.0f} ± {error:,.0f} ({in_symbols(record.text(setting))})")
            difference, low, high = map(round, paired_difference(trace, one))  # there is no −0 among integers
            rows.append((one.problem, a, *cells, f"{difference:,} ({low:,} to {high:,})"))
    return table(("problem", "regret of", before, after, "difference"), rows, "llllr")


def quote_study(prefix: str, study: str, changes: Sequence[Change]) -> None:
    """Quote what the ``changes`` come to, how many settings the ``study`` tried on how many runs, and what made it."""
    quote(
        "",
        prefix,
        judged=len(changes),
        verdicts=sum(not change.stable for change in changes),
        parts=sum(len(change.after[1]) for change in changes),
        gained=sum(change.gained for change in changes),
        lost=sum(change.lost for change in changes),
    )
    (rung,) = STUDIES[study].brackets[0].rungs
    about = record.read(f"{study}_evaluated").about
    made_by = {name: f"`{about[name]}`" for name in ("made", "command", "commit", "code")}
    quote("", prefix, settings=rung.settings, tuned_on=rung.runs, **made_by)
