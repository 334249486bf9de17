"""The command line of a study: ``fedgo begin options.csv --trials 100 --noise 0.3``, then ``ask`` and ``tell``."""

import os
import re
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any

try:
    import click
except ImportError as error:
    raise SystemExit("the command line needs more than torch: pip install 'fedgo[study]'") from error

from fedgo.beyond.study.study import DoneBut, Study
from fedgo.beyond.study.trials import as_lines, standings, verdict

_NUMBER, _WHOLE = click.types.FloatParamType(), click.types.IntParamType()
_NUMBER.name, _WHOLE.name = "number", "whole number"  # messages say this, not "float"
_site = click.option("--site", help="The site that makes the trial, in a study that was begun with --site.")


class _InOneLine(click.Group):
    """The group of all commands, which prints each warning of a command in one line, and so each of its errors.

    These errors are ``ValueError``, ``TypeError``, ``ImportError`` and ``OSError``; any other is passed on as it is.

    The exit code is 0 if the command is done, and 3 if it is done but something failed after it. It is 1 if the command
    failed and changed nothing. If the command line itself is wrong, click prints its usual text, and the code is 2.
    """

    def invoke(self, context: click.Context) -> None:
        """Run the command of ``context``, print each of its warnings to stderr, and raise its error as one line.

        Raises:
            click.ClickException: The command raises a ``ValueError``, ``TypeError``, ``ImportError`` or ``OSError``;
                click prints its message and ends with the exit code 1. A wrong command line is raised too (code 2).
            click.exceptions.Exit: The command is done but something failed after it (a `DoneBut` warning), so that the
                exit code is 3.
        """
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always", UserWarning)
            try:
                super().invoke(context)
            except (ValueError, TypeError, ImportError, OSError) as error:
                raise click.ClickException(_line(error)) from error
            finally:
                for warning in noted:
                    with suppress(OSError):
                        click.echo(f"Note: {_line(warning.message)}", err=True)
                if any(issubclass(warning.category, DoneBut) for warning in noted):
                    context.exit(3)  # this holds after Ctrl-C too


def _line(error: Warning | Exception | str) -> str:
    """Return the message of the ``error`` in one line, without the "[Errno 2]" of an error of the operating system."""
    return " ".join(re.sub(r"\[Errno \d+\] ", "", str(error)).split())


def _say(text: str) -> None:
    """Print ``text``. If that fails or is interrupted, give a `DoneBut` warning, which says that the command is done.

    If it fails because the program that reads the output has closed the pipe, there is no warning.
    """
    try:
        click.echo(text)
    except (OSError, KeyboardInterrupt) as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # so that the interpreter does not fail at its end
        if not isinstance(error, BrokenPipeError):
            warnings.warn(f"done, but this cannot be printed: {error}", DoneBut, stacklevel=2)


@click.group(cls=_InOneLine, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--study", "path", default="study.json", envvar="FEDGO_STUDY", help="The file to use.")
@click.pass_context
def main(context: click.Context, path: str) -> None:
    """Find the best of many options in few trials.

    A study begins with a table of options: a CSV file with a header, and a name and numbers in each row. Ask for an
    option, try it, tell its result, and ask again:

    \b
        fedgo begin options.csv --trials 100 --noise 0.3
        fedgo ask
        fedgo tell "13 min at 215" 6.8
        fedgo show

    The study is kept in the file study.json, unless --study or the environment variable FEDGO_STUDY names another one:
    fedgo --study FILE show.

    The exit code is 0 if the command is done, 1 or 2 if nothing was changed, and 3 if the command is done but something
    failed after it, so that it must not be repeated.
    """
    context.obj = path


def _command(function: Callable[..., None]) -> click.Command:
    """Add the ``function`` to the commands of `main`, and return the command.

    When the command runs, click calls the function with the path of the study's file as its first argument.
    """
    return main.command()(click.pass_obj(function))


@_command
@click.argument("options", metavar="TABLE", type=click.Path(exists=True, dir_okay=False))
@click.option("--trials", type=_WHOLE, help="The approximate number of trials that you can afford.")
@click.option("--noise", type=_NUMBER, help="Standard deviation of a result, from five trials of one option.")
@click.option("--method", help="advised (the default), ucb1, or 'every arm once'.")
@click.option("--site", "sites", multiple=True, help="The name of a site that makes trials; repeatable.")
@click.option("--centre", type=_NUMBER, help="A usual result; needed with --reach.")
@click.option("--spread", type=_NUMBER, help="How much options differ. A result 5 times as far off is noted.")
@click.option("--reach", type=_NUMBER, help="Bound on options' distance from --centre, for certificates.")
@click.option("--differ", is_flag=True, default=None, help="The best option may differ from site to site.")
def begin(path: str, /, options: str, sites: tuple[str, ...], **how: Any) -> None:
    """Begin a study with the options in TABLE, or change it.

    TABLE is a CSV file: a header, then a name and numbers for each option. A new study needs --trials and --noise too.
    If the study exists, further rows at the end of TABLE are added to it, and --noise changes unless the study has
    --reach. If it was begun with --differ, sites may join: give all of them by --site, the new ones last. Everything
    else that is given must be as it was when the study was begun.
    """
    setup, _ = Study(path, options, sites=sites or None, **how).content
    where = " --site NAME" * bool(setup.sites)
    _say(f"{path}: {len(setup.options.names)} options. Next: fedgo ask{where}")


@_command
@click.option("--count", type=_WHOLE, default=1, show_default=True, help="Number of trials to make at once.")
@_site
def ask(path: str, count: int, site: str | None) -> None:
    """Print the option to try next. It stays the same until its result is entered by tell, or it is given up by drop
    or retire.

    With --count, print so many options, one a line. A study with sites needs --site.
    """
    _say("\n".join(Study(path).batch(count, site)))


@main.command(context_settings={"ignore_unknown_options": True})  # "-3" may be a reward
@click.argument("option")
@click.argument("reward", type=_NUMBER)
@_site
@click.pass_obj
def tell(path: str, option: str, reward: float, site: str | None) -> None:
    """Enter the result REWARD of a trial of OPTION, and print how many results there are.

    REWARD is a number. Put a name with blanks in quotes. A result that is far from a usual one is noted, but kept;
    --centre and --spread of the study say what is usual, or else the first results do. A study with sites needs --site.
    """
    told = Study(path).tell(option, reward, site)
    _say(f"{option}: {reward:g}; {told} result{'s' * (told > 1)}")


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
    Study(path).drop(option, site)
    _say(f"given up: {option}")


@_command
@click.argument("option")
@click.option("--again", is_flag=True, help="Propose OPTION again.")
def retire(path: str, option: str, again: bool) -> None:
    """Never propose OPTION again, and give up its open trials. With --again, it may be proposed after all."""
    Study(path).retire(option, not again)
    _say(f"{'proposed again' if again else 'retired'}: {option}")


@_command
@click.option("--top", type=click.IntRange(min=1), help="Print only this many options.")
def show(path: str, top: int | None) -> None:
    """Print the options, best estimate first, the open trials, and how good the best option is.

    While there is no estimate, the options are in the order of the table. If the study was begun with --differ, all
    this is printed for each site.
    """
    (setup, record), lines = Study(path).content, []
    for site in setup.rows:
        lines.append(as_lines(standings(setup, record, site)[:top], site or "option"))
        opened = [trial for trial in record.open if site in (None, trial[1])]
        lines += [f"open: {option}" + f" at {place}" * bool(place) for option, place in opened]
        lines.append(verdict(setup, record, site))
    _say("\n".join(lines))


@_command
@click.argument("picture", default="study.png")
@click.option("--site", help="The site to draw, in a study that was begun with --differ.")
def plot(path: str, picture: str, site: str | None) -> None:
    """Draw the estimates with their intervals, the mean results and any certificates to the file PICTURE.

    PICTURE is study.png if it is not given; the ending of its name decides the format. A file of this name is replaced.
    A study that was begun with --differ needs --site.
    """
    import matplotlib

    matplotlib.use("Agg")
    Study(path).plot(site=site).figure.savefig(picture)
    _say(picture)


if __name__ == "__main__":
    main()
