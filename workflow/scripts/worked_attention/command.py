"""The command `worked-attention`: the judge on somebody's own machine and in their CI, without a checkout of this project."""

import io
import sys
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import click
import numpy as np

from worked_attention.cases.chosen import Chosen, chosen
from worked_attention.cases.escapes import printable
from worked_attention.cases.strict_yaml import Problems
from worked_attention.cases.suites import NAME
from worked_attention.files.formats import write_json, write_text
from worked_attention.referee.mistakes.library import LIBRARY
from worked_attention.referee.outcome import ALLOWABLE, WORDS, annotations, junit, objection
from worked_attention.referee.power import HALF, WAYS, noticed
from worked_attention.referee.report import judge_all, table
from worked_attention.referee.submissions import Submission, Unreadable
from worked_attention.referee.trials import ANY
from worked_attention.stages import parameters
from worked_attention.stages.catalogue import CATALOGUE
from worked_attention.stages.dtypes import DTYPES
from worked_attention.stages.whole import from_parameters

TRIED = 4_000_000  # bytes of arrays of those cases of which `judge` looks in passing how much they would notice
SHOWN = 64  # elements of the arrays that `show` prints
suites_option = click.option("--suite", "suites", multiple=True, metavar="NAME", help="A shipped suite, or a .yaml file of your own.")
cases_option = click.option("--case", "cases", multiple=True, metavar="GLOB", help="suite/case, such as 'masks/*'.")
digits_option = click.option("--digits", type=click.IntRange(1, 17), default=9, show_default=True, help="Significant digits of numbers.")


class Refused(click.ClickException):
    """Input that cannot be used, as opposed to a verdict: the command ends with 2."""

    exit_code = 2


def meant(suites: tuple[str, ...], cases: tuple[str, ...]) -> Chosen:
    """The cases that the options name. Raises Refused."""
    try:
        return chosen(suites, cases)
    except (ValueError, Problems) as error:
        raise Refused("\n".join(map(printable, str(error).splitlines()))) from None


def given(found: Chosen, suite: str, case: dict) -> dict[str, np.ndarray]:
    """The parameters of a case. Raises Refused if torch draws them and is not installed."""
    try:
        return parameters.stage(case, found.folders[suite])
    except ImportError as error:
        raise Refused(f"{suite}/{case['name']}: its parameters need {error.name}, which is not installed") from None


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="worked-attention")
def main() -> None:
    """Is an attention right, and if not, which stage goes wrong first?"""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")


def allowed(_context: click.Context, _option: click.Parameter, value: str) -> tuple[str, ...]:
    """The verdicts in a list with commas."""
    words = tuple(word.strip() for word in value.split(",") if word.strip())
    if unknown := [word for word in words if word not in ALLOWABLE]:
        raise click.BadParameter(f"{', '.join(unknown)}: should be of {', '.join(ALLOWABLE)}")
    return words


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@suites_option
@cases_option
@click.option("--contract", type=click.Choice([ANY, *DTYPES]), default=ANY, help="Right only in this arithmetic, or in a finer one.")
@click.option("--decimals", type=click.IntRange(0, 15), help="Numbers count for so many decimals, as in a calculation by hand.")
@click.option(
    "--allow", default="", callback=allowed, metavar="WORDS", help=f"Verdicts that are no fault, with commas: {', '.join(ALLOWABLE)}."
)
@click.option("--junit", "junit_file", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write the verdicts as JSON.")
@click.option("--github", is_flag=True, help="Print an annotation of GitHub Actions for each kind of fault.")
@click.option("--show-output", is_flag=True, help="Show what a Python file prints.")
@click.option("--fail-fast", is_flag=True, help="Stop at the first fault.")
@digits_option
def judge(path, suites, cases, contract, decimals, allow, junit_file, json_file, github, show_output, fail_fast, digits) -> None:
    """Judge PATH: a Python file with a function attention(case, arrays), or a folder {suite}/{case}/{array}.npy.

    Ends with 0 only if something was judged and all of it is right or allowed; with 1 if not, and with 2 if the input cannot be used.
    """
    found = meant(suites, cases)
    submission = None
    try:
        submission = Submission(path, found.suites, found.folders, found.others)
        stop = [word for word in WORDS if word != "right" and word not in allow] if fail_fast else ()
        verdict = judge_all(submission, found.suites, stop, contract, decimals)
    except Unreadable as error:
        raise Refused(printable(f"{path}: {error}")) from None
    finally:
        if submission and submission.output and show_output:
            click.echo(submission.output, err=True, nl=False)
    click.echo(table(verdict, digits), nl=False)
    for suite in [suite for suite in suites if suite.endswith(".yaml")]:
        warn_of_what_tells_little(found, Path(suite).stem)
    if json_file:
        write(json_file, lambda file: write_json(file, verdict))
        if submission.output:
            write(printed := json_file.with_suffix(".output.txt"), lambda file: write_text(file, submission.output))
            click.echo(f"What it printed: {printed}")
    elif submission.output and not show_output:
        click.echo(f"It printed {submission.output.count(chr(10)):,} lines; --show-output shows them")
    if junit_file:
        write(junit_file, lambda file: write_text(file, junit(verdict["cases"], allow, digits)))
    if github:
        click.echo("".join(annotations(verdict["cases"], allow, path if submission.path.is_file() else None, digits)), nl=False)
    if against := objection(verdict["counts"], allow):
        raise click.ClickException(f"{printable(str(path))}: {against}")  # ends with 1


def computed(found: Chosen, suite: str, cases: Iterable[dict] | None = None) -> list[tuple[dict, dict[str, np.ndarray]]]:
    """The cases of a suite that are meant, or these `cases` of them, each with all its arrays."""
    wanted = found.suites[suite]["cases"].values() if cases is None else cases
    return [(case, from_parameters(case, given(found, suite, case))) for case in wanted]


def smallest(cases: Iterable[dict]) -> list[dict]:
    """As many of the cases, the smallest first, as have arrays of TRIED bytes together."""
    sizes = sorted(((sum(case["bytes"].values()), case) for case in cases), key=lambda pair: pair[0])
    return [case for (_, case), total in zip(sizes, accumulate(size for size, _ in sizes), strict=True) if total <= TRIED]


def warn_of_what_tells_little(found: Chosen, suite: str) -> None:
    """Say so where the cases of somebody's own suite would let most known mistakes pass."""
    cases = found.suites[suite]["cases"].values()
    tried = smallest(cases)
    large = len(cases) - len(tried)
    told = noticed(computed(found, suite, tried), WAYS["output"], HALF)
    count = sum(told.values())
    if count < HALF * len(told):
        said = f"{suite}: an output that is right here shows little, for these cases would notice {count} of the {len(told)} known mistakes"
        beside = f" ({large} large ones were not tried)" * bool(large)
        click.echo(f"Warning: {said} that can be made in them{beside}; see `worked-attention power`", err=True)
    elif not tried:
        click.echo(
            f"{suite}: is too large to tell in passing which known mistakes it would notice; `worked-attention power` does", err=True
        )


def write(path: Path, how) -> None:
    """Let `how(path)` write a file. Raises Refused if it cannot."""
    try:
        how(path)
    except OSError as error:
        raise Refused(f"{path}: cannot be written ({error.strerror})") from None


@main.command("list")
@suites_option
@cases_option
def list_cases(suites, cases) -> None:
    """List the cases, each with its title."""
    for suite, content in meant(suites, cases).suites.items():
        click.echo(f"{suite}: {content['description']}")
        width = max(map(len, content["cases"]))
        for name, case in content["cases"].items():
            click.echo(f"  {name:{width}}  {case['title']}".rstrip())


@main.command()
@click.argument("case")
@suites_option
@digits_option
def show(case, suites, digits) -> None:
    """Show CASE (suite/case): what it is, and its arrays by stage, small ones with their right values."""

    def number(x: float) -> str:
        return f"{x:>{digits + 6}.{digits}g}"  # sign, point and exponent

    found = meant(suites, (case,))
    for suite, content in found.suites.items():
        for name, resolved in content["cases"].items():
            arrays = from_parameters(resolved, given(found, suite, resolved))
            click.echo(f"{suite}/{name}  {resolved['title']}\n{resolved['look']}".rstrip())
            for stage, names in resolved["arrays"].items():
                for array in names:
                    shape = list(arrays[array].shape)
                    click.echo(f"\n{stage}: {array} {shape} {arrays[array].dtype.name}: {CATALOGUE[array].formula}")
                    if arrays[array].size <= SHOWN:
                        click.echo(np.array2string(arrays[array].astype(float), formatter={"float_kind": number}, max_line_width=120))


@main.command()
@suites_option
@cases_option
def power(suites, cases) -> None:
    """Tell how many known mistakes the cases would notice, if all arrays are sent or less, and which they would not."""
    found = meant(suites, cases)
    for suite in found.suites:
        right = computed(found, suite)
        for way, less in {"all arrays": dict, **WAYS}.items():
            told = noticed(right, less)
            hidden = [name for name, seen in told.items() if not seen]
            click.echo(f"{suite}, {way}: {len(told) - len(hidden)} of {len(told)} known mistakes that can be made in its cases are noticed")
            for name in hidden:
                click.echo(f"  not {name}: {LIBRARY[name].sentence}")


@main.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--cases", type=click.IntRange(1, 100_000), default=300, show_default=True, help="How many cases are drawn.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Which ones: the same for the same seed.")
@click.option("--block", type=click.IntRange(2, 256), default=64, show_default=True, help="Lengths lie around the edges of such blocks.")
@click.option(
    *("--allow", "allow"),
    default="undecided,unsupported",
    show_default=True,
    callback=allowed,
    metavar="WORDS",
    help=f"Verdicts that are no fault, with commas: {', '.join(ALLOWABLE)}.",
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="FILE", help="Write what fails as a suite, for `judge --suite FILE`.")
@digits_option
def fuzz(path, cases, seed, block, allow, keep, digits) -> None:
    """Judge PATH, a Python file, on random cases of what it takes, and show the smallest ones that it fails.

    Ends as `judge` does. What it refuses with NotImplementedError is drawn no more.
    """
    try:
        from worked_attention.fuzzing import search
        from worked_attention.fuzzing.kernel import Kernel
    except ModuleNotFoundError as error:
        raise Refused(f"fuzz needs {error.name}, which is not installed; pip install 'worked-attention[fuzz]' brings it") from None
    if keep and not (keep.suffix == ".yaml" and NAME.fullmatch(keep.stem)):
        raise Refused(f"--keep {keep}: the name of a suite has small letters, digits and _, and ends in .yaml")
    try:
        with Kernel(path) as kernel:
            found = search.fuzz(kernel, kernel.conventions, cases, seed, block, allow)
    except Unreadable as error:
        raise Refused(printable(f"{path}: {error}")) from None
    click.echo(f"{sum(found.counts.values())} cases: {', '.join(f'{count} {word}' for word, count in found.counts.items())}")
    if found.refused:
        click.echo(f"Refused, and drawn no more: {'; '.join(found.refused)}")
    if found.failures:
        text = search.suite(found.failures, f"What worked-attention fuzz --cases {cases} --seed {seed} --block {block} found.", digits)
        click.echo(f"{found.others} more failures are like none of these\n" * bool(found.others) + f"\n{text}", nl=False)
        if keep:
            write(keep, lambda file: write_text(file, text))
    if against := objection(found.counts, allow):
        raise click.ClickException(f"{printable(str(path))}: {against}")  # ends with 1


@main.command()
@click.argument("folder", type=click.Path(path_type=Path))
@suites_option
@cases_option
@click.option("--check", is_flag=True, help="Write nothing; compare what lies in FOLDER with the numbers of this version.")
def export(folder, suites, cases, check) -> None:
    """Write every array of the cases to FOLDER/{suite} as golden vectors, with a manifest that explains them.

    With --check, ends with 1 if a number, an array or a case differs.
    """
    from worked_attention.files.golden import differences, export_suite

    found = meant(suites, cases)
    for suite in [] if check else found.suites:
        if (folder / suite).exists():
            raise Refused(f"{folder / suite}: is there already; remove it, or choose another folder")
    differing = 0
    for suite, content in found.suites.items():
        right = computed(found, suite)
        if not check:
            click.echo(f"{folder / suite}: {export_suite(folder / suite, content, right)} cases")
            continue
        try:
            lines = list(differences(folder / suite, right))
        except (OSError, ValueError) as error:
            raise Refused(printable(f"{folder / suite}: is no exported suite ({error})")) from None
        click.echo("".join(f"{suite}/{line}\n" for line in lines), nl=False)
        differing += len(lines)
        click.echo(f"{folder / suite}: {len(lines) or 'no'} differences in {len(right)} cases")
    if differing:
        raise click.ClickException(f"{folder}: {differing} differences")
