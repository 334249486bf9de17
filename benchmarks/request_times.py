"""How long a request to a study takes, by its options, results and sites that differ: `make attack TIMES=1`.

With --store the table is written for the page on reliability.
"""

import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import torch

from fedgo.beyond import Study
from fedgo.beyond.study.trials import posterior, standings, summary, verdict

ROOT = Path(__file__).resolve().parents[1]
TIMES = ROOT / "book/_assets/times.txt"
SIZES = [  # of studies: options, results, sites that differ, trials at once
    (2_000, 100, 0, 1),
    (20_000, 300, 0, 1),
    (1_000, 300, 100, 1),
    (2_000, 100, 0, 1_536),
]


def show(study: Study, site: str | None) -> None:
    """Compute what `fedgo show` prints."""
    setup, record = study.content
    for part in (summary, verdict, standings):
        part(setup, record, site)


def requests(options: int, results: int, sites: int, count: int, folder: Path) -> list[float]:
    """Return the seconds of processor time in which a study begins, is asked, told and shown."""
    draw = torch.Generator().manual_seed(0)
    frame = pd.DataFrame(torch.rand(options, 3, generator=draw, dtype=torch.float64), columns=list("abc"))
    values = frame["a"] + frame["b"] ** 2 + 0.1 * torch.randn(options, generator=draw).numpy()
    frame = frame.round(4).assign(solvent=[f"solvent {k % 7}" for k in range(options)])
    names = [f"site {k}" for k in range(sites)]
    how: dict[str, Any] = {"sites": names, "differ": True} if sites else {}
    path, site, share = folder / "study.json", (names or [None])[0], results // max(1, sites)

    def timed(work: Callable[[], Any]) -> float:
        posterior.cache_clear()
        begins = time.process_time()
        work()
        return time.process_time() - begins

    begin = timed(lambda: Study(path, frame, trials=results, **how))
    for k, at in enumerate(names or [None]):
        Study(path).tell_plate(frame.assign(result=values)[k * share :][:share], at)
    ask = timed(lambda: Study(path).batch(count, site))
    tell = timed(lambda: Study(path).tell(Study(path).setup.options.names[0], 1.0, site))
    return [begin, ask, tell, timed(lambda: show(Study(path), site))]


def measure() -> str:
    """Return the table of the times of all sizes."""
    rows = ["| options | results | differing sites | trials at once | begin | ask | tell | show |"]
    rows.append("| ---: " * 8 + "|")
    for size in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            seconds = requests(*size, Path(folder))
        rows.append("| " + " | ".join([*(f"{n:,}" for n in size), *(f"{s:.2f}" for s in seconds)]) + " |")
        print(rows[-1], flush=True)
    return "\n".join(rows)


def made_by(command: str) -> str:
    """Return the sentence that says when, from which commit and by which command something was made."""
    describe = ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=12", "--exclude=*", "--dirty=+"]
    commit = subprocess.run(describe, capture_output=True, text=True, check=False).stdout.strip()
    return f"Made on {time.strftime('%Y-%m-%d')} at commit `{commit}` by `{command}`."


def main() -> None:
    """Print the table, and store it if asked to."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    text = f"{measure()}\n\n{made_by('make attack TIMES=1 STORE=1')}\n"
    if "--store" in sys.argv:
        TIMES.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
