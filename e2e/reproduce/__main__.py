"""`python -m e2e.reproduce [PAPER...]`: the table on stdout, progress on stderr.

Exit 0 all that is claimed holds, 1 something that is claimed does not (or an error), 2 bad usage. What is listed as
missed does not fail the run: it stands in the table with its reason.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
from pathlib import Path

import click

from e2e.reproduce import table
from e2e.reproduce._page import README, written
from e2e.reproduce.run import DATA, papers, run


@click.command(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.argument("chosen", metavar="[PAPER]...", nargs=-1)
@click.option(
    "--quick/--all", default=lambda: os.environ.get("QUICK", "") not in ("", "0"), help="Only the quick part."
)
@click.option("--only", default="", metavar="TEXT", help="Only entries whose name contains TEXT.")
@click.option(
    "--processes", type=click.IntRange(1), default=min(2, os.cpu_count() or 1), show_default=True,
    help="Papers at the same time.",
)  # fmt: skip
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("out/reproduce"), show_default=True,
    help="Folder of results.json and results.md.",
)  # fmt: skip
@click.option(
    "--resume",
    is_flag=True,
    help="Measure only what OUT does not hold from runs before with the same code and traces.",
)
@click.option(
    "--page",
    is_flag=True,
    help="Write the tables of README.md of the papers that are run (whole: not with --only).",
)
@click.option("--list", "listed", is_flag=True, help="List the papers.")
def main(
    chosen: tuple[str, ...], quick: bool, only: str, processes: int, out: Path, resume: bool, page: bool,
    listed: bool,
) -> None:  # fmt: skip
    """Measure the figures of the papers and print them beside their targets.

    \b
    Everything (many hours):    make reproduce
    All but our own policy:     make reproduce PAPERS="afs gang gavel pollux sidecar similarity specon"  (an hour)
    The part that tests run:    make reproduce QUICK=1
    The README's tables:        python -m e2e.reproduce gavel --resume --page
    One paper, one figure:      python -m e2e.reproduce afs --only 'AFS-L'
    Hours, piece by piece:      python -m e2e.reproduce own --resume --only '11cb48'
    """
    there = papers()
    if listed:
        click.echo("\n".join(there))
        return
    for name in chosen:
        if name not in there:
            click.echo(f"reproduce: {name!r} is not known; there are: {', '.join(there)}", err=True)
            sys.exit(2)
    if page and (quick or only):
        click.echo("reproduce: --page wants whole papers: not with --quick (QUICK) or --only", err=True)
        sys.exit(2)
    if not (DATA / "README.md").exists():
        click.echo("reproduce: no folder of traces: set TRACES to one (see e2e/README.md, Traces)", err=True)
        sys.exit(2)
    out.mkdir(parents=True, exist_ok=True)
    anew = not (resume or only or quick)
    for name in chosen or there if anew else ():
        (out / f"{name}.jsonl").unlink(missing_ok=True)
    kept = out if resume or anew else None
    rows = run(chosen or there, quick, only, processes, lambda text: click.echo(text, err=True), kept=kept)
    if not rows:
        click.echo("reproduce: no entry was chosen", err=True)
        sys.exit(2)
    click.echo(table.text(rows), nl=False)
    (out / "results.md").write_text(table.markdown(rows), encoding="utf-8")
    plain = [{k: None if v != v else v for k, v in dataclasses.asdict(row).items()} for row in rows]
    (out / "results.json").write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    failed = [row for row in rows if row.failed]
    if page and not failed:
        README.write_text(written(README.read_text(encoding="utf-8"), rows), encoding="utf-8")
    total = math.fsum(row.seconds for row in rows)
    counts = table.counts(row.verdict for row in rows)
    click.echo(f"{len(rows)} figures in {total:.0f} s: {counts}, {len(failed)} fail", err=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
