"""BLEU as papers on Multi30k report it, beside sacreBLEU on raw text.

    pip install sacremoses
    python benchmarks/multi30k.py runs/mine test_2016_flickr.en test_2016_flickr.de [--beam 5]

Papers on this corpus score text that was tokenized by Moses' script and lower-cased; both sides are treated so here.
"""

import argparse
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from sacremoses import MosesTokenizer

from regard.data.readers.text_files import read_lines
from regard.tasks import load


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run")
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--language", default="de")
    options = parser.parse_args()
    references = read_lines(options.target)
    found = load(options.run).translate(read_lines(options.source), beams=options.beam)
    hypotheses = [best[0].text for best in found]

    moses = MosesTokenizer(lang=options.language)
    tokenized = [
        [moses.tokenize(text.lower(), return_str=True, escape=False) for text in texts]
        for texts in (hypotheses, references)
    ]
    as_published = BLEU(tokenize="none", force=True).corpus_score(tokenized[0], [tokenized[1]])
    raw = BLEU()
    print(f"tokenized, lower-cased  {as_published.score:.2f}")
    print(f"sacreBLEU, raw text     {raw.corpus_score(hypotheses, [references]).score:.2f}   {raw.get_signature()}")


if __name__ == "__main__":
    main()
