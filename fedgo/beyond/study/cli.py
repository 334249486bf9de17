"""The command line of a study: ``fedgo begin options.csv --trials 100 --noise 0.3``, then ``ask`` and ``tell``."""

import warnings
from pathlib import Path
from typing import Any

try:
    import click
except ImportError as error:
    raise SystemExit("the command line needs more than torch: pip install 'fedgo[study]'") from error

from fedgo.beyond.advised import METHODS
from fedgo.beyond.study.study import PRINTED, Study, as_lines

_site = click.option("--site", help="Who tries, in a study that was begun with --site.")


class _InOneLine(click.Group):
    """Errors that a user can mend, and warnings, in a line each; the exit code is 1."""

    def invoke(self, context: click.Context) -> Any:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always", UserWarning)
            try:
                return super().invoke(context)
            except (ValueError, TypeError, ImportError, OSError) as error:
                raise click.ClickException(" ".join(str(error).split())) from error
            finally:
                for warning in found:
                    click.echo(f"Note: {warning.message}", err=True)


@click.group(
    cls=_InOneLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.option(
    "--study", "path", type=click.Path(path_type=Path), default="study.json", envvar="FEDGO_STUDY",
    show_default=True, show_envvar=True, help="The file that remembers all.",
)  # fmt: skip
@click.pass_context
def main(context: click.Context, path: Path) -> None:
    """Find the best of many options in few trials.

    A table of options, a CSV with a header, a name and numbers in each row, begins a study. Ask for an option,
    try it, tell what came of it, and ask again:

    \b
        fedgo begin options.csv --trials 100 --noise 0.3
        fedgo ask
        fedgo tell "13 min at 215" 6.8
        fedgo show
    """
    context.obj = path


@main.command()
@click.argument("options", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--trials", type=int, help="About how many you can afford.")
@click.option("--noise", type=float, help="Standard deviation of a result, from five trials of one option.")
@click.option("--method", type=click.Choice([*METHODS, PRINTED]), default="advised", show_default=True)
@click.option("--site", "sites", multiple=True, help="Name of a place that tries; give it once for each.")
@click.option("--centre", type=float, help="A usual result; needed with --reach.")
@click.option("--spread", type=float, help="By how much options differ: to be asked about what looks odd.")
@click.option("--reach", type=float, help="No option is further from the centre: gives certificates.")
@click.pass_obj
def begin(path: Path, /, options: Path, **how: Any) -> None:
    """Begin a study; or, if it is there, take in rows added at the end of the table OPTIONS, or another --noise."""
    study = Study(path, options, **how)
    where = " --site NAME" * bool(study.sites)
    click.echo(f"{path}: {len(study.standings())} options. Next: fedgo ask{where}")


@main.command()
@click.option("--count", default=1, show_default=True, help="How many trials to make at once.")
@_site
@click.pass_obj
def ask(path: Path, count: int, site: str | None) -> None:
    """Say what to try next; the same again until its result is told."""
    click.echo("\n".join(Study(path).batch(count, site)))


@main.command(context_settings={"ignore_unknown_options": True})  # -3 is a reward
@click.argument("option")
@click.argument("reward", type=float)
@_site
@click.pass_obj
def tell(path: Path, option: str, reward: float, site: str | None) -> None:
    """Tell the result REWARD of a trial of OPTION; a name with blanks stands in quotes."""
    study = Study(path)
    study.tell(option, reward, site)
    told = len(study.told)
    click.echo(f"{option}: {reward:g}; {told} result{'s' * (told > 1)}")


@main.command()
@click.argument("option", required=False)
@_site
@click.pass_obj
def untell(path: Path, option: str | None, site: str | None) -> None:
    """Take back the last result, or the last of OPTION."""
    name, reward = Study(path).untell(option, site)
    click.echo(f"taken back: {reward:g} of {name}")


@main.command()
@click.argument("option")
@_site
@click.pass_obj
def drop(path: Path, option: str, site: str | None) -> None:
    """Give up an open trial of OPTION."""
    Study(path).drop(option, site)


@main.command()
@click.argument("option")
@click.option("--again", is_flag=True, help="Propose it again after all.")
@click.pass_obj
def retire(path: Path, option: str, again: bool) -> None:
    """Never propose OPTION again."""
    Study(path).retire(option, not again)


@main.command()
@click.option("--top", type=click.IntRange(min=1), help="Only the best so many.")
@click.pass_obj
def show(path: Path, top: int | None) -> None:
    """The options, the best estimate first, what is open, and when to stop."""
    study = Study(path)
    click.echo(as_lines(study.standings()[:top]))
    for option, site in study.open:
        click.echo(f"open: {option}" + f" at {site}" * bool(site))
    click.echo(study.verdict())


@main.command()
@click.argument("picture", type=click.Path(path_type=Path), default="study.png")
@click.pass_obj
def plot(path: Path, picture: Path) -> None:
    """Draw estimates and intervals to PICTURE."""
    import matplotlib

    matplotlib.use("Agg")
    Study(path).plot().figure.savefig(picture)
    click.echo(str(picture))


if __name__ == "__main__":
    main()
