"""Stores the results of `regard why` as the measured ones, and writes their table into docs/why.md.

    regard why residual --out runs/why/residual && regard why residual --out runs/why/residual --same
    python benchmarks/why.py runs/why/residual …

Without folders it writes the table of what is stored already.
"""

import argparse
import re
from pathlib import Path

from regard.files import write_text
from regard.why.report import keep, verdict_table

PAGE = Path(__file__).parents[1] / "docs" / "why.md"
PART = re.compile(r"(?<=<!-- verdicts -->\n).*?(?=\n<!-- end -->)", re.DOTALL)

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", type=Path, nargs="*")
    for folder in parser.parse_args().folders:
        print("stored:", keep(folder))
    write_text(PAGE, PART.sub(lambda _: verdict_table(), PAGE.read_text(encoding="utf-8")))
    print("written:", PAGE)
