"""The command line of a study: ``fedgo begin TABLE --result yield --trials 50``, then ``ask`` and ``tell``."""

import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any

try:
    import click
except ImportError as error:
    raise SystemExit("the command line needs more than torch: pip install 'fedgo[study]'") from error

from fedgo._checks import require
from fedgo.beyond.study.cells import FAILED
from fedgo.beyond.study.setup import Setup
from fedgo.beyond.study.study import DoneBut, Study
from fedgo.beyond.study.table import CATEGORY, NAME, read
from fedgo.beyond.study.trials import as_lines, standings, summary, verdict

_NUMBER, _RESULT = click.types.FloatParamType(), click.types.FloatParamType()
_NUMBER.name, _RESULT.name = "number", "number with a decimal point"  # messages say this, not "float"
_NUMBERS = r"(?i)([-+]?\d*\.?\d+(e[-+]?\d+)?( |$))+"  # one or several, separated by blanks
_site = click.option("--site", help="The site that makes the trial, in a study that was begun with --site.")


class _InOneLine(click.Group):
    """The group of all commands, which prints each warning and each error of a command in one line."""

    def invoke(self, context: click.Context) -> None:
        """Run the command of ``context``, and end it with one of the exit codes that the help of `main` names."""
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            try:
                with _clock():
                    super().invoke(context)
            except (ValueError, TypeError, ImportError, OSError) as error:
                raise click.ClickException(_line(error)) from error
            finally:
                for warning in noted:
                    with suppress(OSError):
                        click.echo(f"Note: {_line(warning.message)}", err=True)
                if any(issubclass(warning.category, DoneBut) for warning in noted):
                    context.exit(3)  # this holds after Ctrl-C too


@contextmanager
def _clock() -> Iterator[None]:
    """Say on a terminal for how many seconds a command has worked, from the third one on."""
    begins, done = monotonic(), Event()

    def tick() -> None:
        while not done.wait(3):
            click.echo(f"\rworking, {monotonic() - begins:.0f} s ", err=True, nl=False)

    if sys.stderr.isatty():
        Thread(target=tick, daemon=True).start()
    try:
        yield
    finally:
        done.set()


def _line(error: Warning | Exception | str) -> str:
    """Return the message of the ``error`` in one line, without the "[Errno 2]" of an error of the operating system."""
    return " ".join(re.sub(r"\[Errno \d+\] ", "", str(error)).split())


def _say(text: str, changed: bool = True) -> None:
    """Print ``text``, with escapes for characters that the output does not know."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        click.echo(text.encode(encoding, "backslashreplace").decode(encoding))
    except (OSError, ValueError, KeyboardInterrupt) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter does not fail at its end
        if not changed:
            raise OSError(f"this cannot be printed: {error}") from error
        warnings.warn(f"done, but this cannot be printed: {error}", DoneBut, stacklevel=2)


def _write(frame: Any, path: str, index: bool, setup: Setup) -> None:
    """Write the ``frame`` to a new file, in Excel's format if its name ends so, and otherwise as CSV.

    If the table of the study has decimal commas, the CSV has semicolons and decimal commas. Names, categories and
    ignored columns stay as they are.
    """
    if path.endswith(".xlsx"):
        frame.to_excel(path, index=index)
        return
    how = {"sep": ",", "decimal": "."}
    if setup.decimal_comma:
        how = {"sep": ";", "decimal": ","}
        texts = frame.select_dtypes(exclude=["number", "bool"])
        kept = setup.options.having(NAME, CATEGORY, "ignored")
        for header in texts.columns.difference([*kept, *(f"{header} (table)" for header in kept)]):
            numbers = frame[header].str.fullmatch(_NUMBERS)
            frame[header] = frame[header].mask(numbers, frame[header].str.replace(".", ","))
    # Excel needs the mark to know UTF-8
    frame.to_csv(path, index=index, encoding="utf-8-sig", mode="x", **how)


def _new(path: str) -> str:
    """Return ``path`` after a check that there is no such file, but a folder for it."""
    require(not Path(path).exists(), "the file to write", path, "it exists: give another name, or remove it")
    require(Path(path).parent.is_dir(), "the folder of the file to write", path, "create it first")
    can = not path.endswith(".xlsx") or find_spec("openpyxl") is not None
    require(can, "the file to write", path, "this needs openpyxl (pip install openpyxl); or end it with .csv")
    return path


@click.group(cls=_InOneLine)
@click.option("--study", "path", default="study.json", envvar="FEDGO_STUDY", help="The file to use.")
@click.pass_context
def main(context: click.Context, path: str) -> None:
    """Find the best of many options in few trials.

    A study begins with a table: a row for each option, or for each experiment that was made. Ask for an option, try it,
    tell its result, and ask again:

    \b
        fedgo begin TABLE --result yield --trials 50
        fedgo ask
        fedgo tell "THF, KOAc, 90" 61.5
        fedgo show

    The study is kept in the file study.json, unless --study or the environment variable FEDGO_STUDY names another one:
    fedgo --study FILE show.

    The exit code is 0 if the command is done, 1 or 2 if nothing was changed, and 3 if the command is done but something
    failed after it, so that it must not be repeated.
    """
    context.obj = path


def _command(function: Callable[..., None]) -> click.Command:
    """Add the ``function``, which gets the path of the study's file first, to the commands of `main`."""
    # an option's name may begin with a minus; without one-letter options it cannot be taken for one of them
    return main.command(context_settings={"ignore_unknown_options": True})(click.pass_obj(function))


@_command
@click.argument("options", metavar="TABLE", type=click.Path(exists=True, dir_okay=False))
@click.option("--trials", type=int, help="The approximate number of trials that you can afford.")
@click.option("--result", multiple=True, help="The column with results; those in it are told at once.")
@click.option("--name", help="The column with the names of the options.")
@click.option("--ignore", multiple=True, help="A column to leave out; repeatable.")
@click.option("--category", multiple=True, help="A column whose numbers are only codes; repeatable.")
@click.option("--number", multiple=True, help="A feature that looks like results or row numbers; repeatable.")
@click.option("--lower-is-better", is_flag=True, default=None, help="Look for the lowest result.")
@click.option("--check", is_flag=True, help="Only say what the table is taken for.")
@click.option("--noise", type=_NUMBER, help="Standard deviation of a result; estimated if it is not given.")
@click.option("--goal", help="best (the default: the final choice counts) or reward (every result counts).")
@click.option("--method", help="advised (the default), ucb1, or 'every arm once'.")
@click.option("--site", "sites", multiple=True, help="The name of a site that makes trials; repeatable.")
@click.option("--centre", type=_NUMBER, help="A usual result; needed with --reach.")
@click.option("--reach", type=_NUMBER, help="Bound on options' distance from --centre, for certificates.")
@click.option("--differ", is_flag=True, default=None, help="The best option may differ from site to site.")
def begin(path: str, /, options: str, sites: tuple[str, ...], check: bool, **how: Any) -> None:
    """Begin a study with the options in TABLE, or change it.

    TABLE is a CSV or Excel file with a header, and a row for each option or experiment. What each column is taken for
    is printed; --name, --result, --ignore, --category and --number change that. A new study needs --trials too.

    If the study exists, further rows of TABLE are added to it, and --trials and --noise change (not --noise with
    --reach). If it was begun with --differ, sites may join: give all of them by --site, the new ones last. Everything
    else that is given must be as it was when the study was begun.
    """
    results = how.pop("result")  # click itself would take the last of several
    require(len(results) < 2, "--result", results, "give one column: make one number of several first")
    how["result"] = next(iter(results), None)
    if check:
        columns = {key: how[key] for key in ("name", "result", "ignore", "category", "number")}
        report, last = read(options, **columns).report, "Nothing is written."
        lower = how["lower_is_better"]
    else:
        study = Study(path, options, sites=sites or None, **how)
        report, where = study.report, " --site NAME" * bool(study.setup.sites)
        last = f"{path}: {len(study.setup.options.names)} options. Next: fedgo ask{where}"
        lower = study.setup.lower_is_better
    best = "The highest result is best; if it is the lowest, give --lower-is-better."
    _say("\n".join([*report, "The lowest result is best." if lower else best, last]), not check)


@_command
@click.option("--count", type=int, default=1, show_default=True, help="Number of trials to make at once.")
@click.option("--to", help="Write the trials to this new file, in which results can be filled in.")
@_site
def ask(path: str, count: int, to: str | None, site: str | None) -> None:
    """Print the option to try next: its name, a tab, and its features.

    Every call opens a new trial, unless --site is given: a site is given its open trials again. `show` lists the open
    trials. With --count, print so many options, one a line. A study with sites needs --site.
    """
    study = Study(path)
    if to is None:
        names = study.batch(count, site)
        rows = zip(names, study.setup.options.words(names), strict=True)
        _say("\n".join("\t".join(row).strip() for row in rows))
        return
    _new(to)
    frame = study.plate(count, site)
    try:
        _write(frame, to, False, study.setup)
    except (OSError, ImportError) as error:  # pandas refuses an old openpyxl
        warnings.warn(f"the trials are open, but {to!r} cannot be written: {error}", DoneBut, stacklevel=2)
        return
    where = f" --site {site!r}" if site else ""
    _say(f"{to}: {count} trials. Fill in {study.setup.options.result!r}, then: fedgo tell {to}{where}")


@_command
@click.argument("option", metavar="OPTION|PLATE")
@click.argument("result", required=False)
@click.option("--again", is_flag=True, help="Results that are told already are those of further trials.")
@_site
def tell(path: str, option: str, result: str | None, again: bool, site: str | None) -> None:
    """Enter the RESULT of a trial of OPTION, or all results in the file PLATE, and print how many results there are.

    RESULT is a number, or "failed": then OPTION is not proposed again. Put a name with blanks in quotes. PLATE is a
    file of `ask --to` with results, or another table with the columns of the study. If one of its rows is wrong,
    nothing is entered. A result that is far from a usual one is noted, but kept. A study with sites needs --site.
    """
    study = Study(path)
    if result is None:
        remedy = "give its result too, or the path of a plate"
        require(Path(option).is_file(), "OPTION", option[:60], remedy)
        told = study.tell_plate(option, site, again)
        _say(f"{option}: {told} result{'s' * (told != 1)}{'; nothing is filled in' * (told == 0)}")
    else:
        failed = result.lower() == FAILED
        value = FAILED if failed else _RESULT.convert(result, None, None)  # type: ignore[arg-type]
        name = study.setup.option(option)
        before = [f"{reward:g}" for other, _, reward in study.told if other == name]
        told = study.tell(option, value, site, again)
        note = ""
        if failed:
            note = " (fedgo retire OPTION --again takes it back)"
        elif before:
            note = f", of it {', '.join([*before, result])} (fedgo untell takes back a mistake)"
        _say(f"{name}: {result}; {told} result{'s' * (told != 1)}{note}")


@_command
@click.argument("option", required=False)
@_site
def untell(path: str, option: str | None, site: str | None) -> None:
    """Take back the last result that was entered, or the last one of OPTION.

    With --site, take back the last one of this site. The result and its option are printed.
    """
    name, reward = Study(path).untell(option, site)
    _say(f"taken back: {reward:g} of {name}")


@_command
@click.argument("option")
@_site
def drop(path: str, option: str, site: str | None) -> None:
    """Give up an open trial of OPTION whose result will not come.

    A trial is open if ask has printed it and its result has not been entered. A study with sites needs --site.
    """
    study = Study(path)
    study.drop(option, site)
    _say(f"given up: {study.setup.option(option)}")


@_command
@click.argument("option")
@click.option("--again", is_flag=True, help="Propose OPTION again.")
def retire(path: str, option: str, again: bool) -> None:
    """Never propose OPTION again, and give up its open trials. With --again, it may be proposed after all."""
    study = Study(path)
    study.retire(option, not again)
    _say(f"{'proposed again' if again else 'retired'}: {study.setup.option(option)}")


@_command
@click.option("--top", type=click.IntRange(1), default=10, show_default=True, help="Options to print.")
def show(path: str, top: int) -> None:
    """Print the best option so far, what to expect next, how much better another could be, and the best estimates.

    While there is no estimate, the options are in the order of the table. If the study was begun with --differ, all
    this is printed for each site.
    """
    (setup, record), lines = Study(path).content, []
    for site in setup.rows:
        rows = standings(setup, record, site)
        lines += [*summary(setup, record, site), verdict(setup, record, site), ""]
        lines.append(as_lines(rows[:top], site or "option"))
        lines += [f"and {len(rows) - top} options more: --top {len(rows)}"] * (len(rows) > top)
        opened = [trial for trial in record.open if site in (None, trial[1])]
        lines += [f"open: {option}" + f" at {place}" * bool(place) for option, place in opened]
    _say("\n".join(lines), False)


@_command
@click.argument("picture", default="study.png")
@click.option("--site", help="The site to draw, in a study that was begun with --differ.")
def plot(path: str, picture: str, site: str | None) -> None:
    """Draw the results in order, the predictions against them, and the effect of each column to the file PICTURE.

    PICTURE is study.png if it is not given; the ending of its name decides the format. A file of this name is replaced.
    A study that was begun with --differ needs --site.
    """
    import matplotlib

    matplotlib.use("Agg")
    require(not Path(picture).is_dir(), "PICTURE", picture, "give the name of a file")
    picture += ".png" * (Path(picture).suffix == "")
    Study(path).plot(site=site).savefig(picture)
    _say(picture)


@_command
@click.argument("file", default="results.csv")
@click.option("--site", help="The site to export, in a study that was begun with --differ.")
def export(path: str, file: str, site: str | None) -> None:
    """Write the table with all results, estimates and intervals to the new FILE, results.csv if it is not given."""
    study = Study(path)
    _write(study.to_frame(site), _new(file), True, study.setup)
    _say(file)


if __name__ == "__main__":
    main()
