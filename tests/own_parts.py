"""A learner who has solved everything: their folder, and chapter 09 trained from their own parts.

As a program it trains with a budget and prints what the model is made of and how well it translates::

    .venv/bin/python -m tests.own_parts [full|small|tiny] [finished]
"""

import json
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MARKERS = ("### BEGIN SOLUTION", "### END SOLUTION", "### BEGIN HIDDEN TESTS", "### END HIDDEN TESTS")


def solved_course(folder: Path) -> Path:
    """Write every chapter's notebook with all TODOs solved, as learners have them, into `folder`."""
    for solution in sorted(ROOT.glob("solutions/*/*.ipynb")):
        notebook = json.loads(solution.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            lines = "".join(cell["source"]).split("\n")
            cell["source"] = "\n".join(line for line in lines if line.strip() not in MARKERS)
        target = folder / solution.parent.name / solution.name
        target.parent.mkdir(parents=True)
        target.write_text(json.dumps(notebook), encoding="utf-8")
    return folder


def main(arguments: list[str]) -> None:
    """Train and report."""
    from transformer_lab.translation import capstone, exact_match, train_step

    budget = capstone.BUDGETS[arguments[0] if arguments else "full"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        parts = capstone.choose_parts(folder if "finished" in arguments else solved_course(folder))
    corpus = capstone.corpus_for(budget)
    trainer = capstone.trainer_for(corpus, budget, parts, train_step)
    print(budget, capstone.origins(trainer.model), sep="\n", flush=True)
    started = time.process_time()
    trainer.train(progress=False)
    worked = time.process_time() - started
    print(f"{len(trainer.losses)} steps, {trainer.seconds:.0f} s ({worked:.0f} s of work)")
    print("held out:", exact_match(trainer.model, corpus, corpus.heldout))
    print("unseen pairs:", exact_match(trainer.model, corpus, corpus.unseen), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
