"""Half, a quarter and an eighth of the keys of a pre-trained sentence encoder, without training.

    pip install -e '.[hf,examples]'
    python examples/minilm.py STSB    # folder with train.csv and dev.csv of the STS benchmark

all-MiniLM-L6-v2 is BERT with 6 layers, H = 12 heads and d = 384.  The key cache of a key width K is
K numbers per token and layer.  The queries of "separate", "diagonal" and "full" have width K, too,
as in Cordonnier et al. 2020; "own" narrows keys alone.
"""

import argparse
import copy
import time
from pathlib import Path

from stsb import calibration, cosines, encode, interval, load, price, read, score

from collab_lab import swap_attention

QUERIES = ("separate", "diagonal", "full", "own")
#: Scores on the development set, by key width.
EXPECTED = {
    192: (86.42, 86.60, 86.68, 86.71),
    96: (85.74, 85.78, 86.51, 86.68),
    48: (84.99, 85.24, 85.71, 86.29),
}
HEAD = "key width  query     score  expected  against trained   CPU s  weights  multiply-adds"
ROW = "{:9}  {:8}  {:5.2f}  {:8.2f}  {:+.2f} to {:+.2f}  {:5.1f}  {:7,}  {:13,}"


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", default="dev", help="or test")
    parser.add_argument("--pairs", type=int, help="the first pairs only")
    args = parser.parse_args(argv)
    pairs, inputs = read(args.folder, args.set)[: args.pairs], calibration(args.folder)
    model = load()
    trained = cosines(model, pairs)
    print(HEAD)
    cells = score(trained, pairs), 86.72, 0, 0, 0, *price(384, "separate")
    print(ROW.format(384, "trained", *cells))
    for key_dim, scores in EXPECTED.items():
        for query, expected in zip(QUERIES, scores, strict=True):
            swapped, start = copy.deepcopy(model), time.process_time()
            swap_attention(swapped, key_dim, query=query, inputs=inputs)
            seconds = time.process_time() - start
            found = cosines(swapped, pairs)
            cells = score(found, pairs), expected, *interval(found, trained, pairs), seconds
            print(ROW.format(key_dim, query, *cells, *price(key_dim, query)), flush=True)
    # Any BERT: exact at the model's own width.
    before = encode(model, inputs[0])
    swap_attention(model, 384, inputs=inputs)
    error = (encode(model, inputs[0]) - before).norm() / before.norm()
    print(f"key width 384: relative error of sentence vectors {error:.1e}")


if __name__ == "__main__":
    main()
