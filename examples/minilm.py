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

from stsb import calibration, encode, load, price, read, score

from fairseq_collab.adapters import swap_attention

QUERIES = ("separate", "diagonal", "full", "own")
#: Scores on the development set, by key width.
EXPECTED = {
    192: (86.31, 86.58, 86.67, 86.68),
    96: (85.61, 85.63, 86.35, 86.51),
    48: (84.85, 85.09, 85.56, 86.03),
}
HEAD = "key width  query     score  expected  CPU s  weights  multiply-adds"
ROW = "{:9}  {:8}  {:5.2f}  {:8.2f}  {:5.1f}  {:7,}  {:13,}"


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", default="dev", help="or test")
    parser.add_argument("--pairs", type=int, help="the first pairs only")
    args = parser.parse_args(argv)
    pairs, inputs = read(args.folder, args.set)[: args.pairs], calibration(args.folder)
    model = load()
    print(HEAD)
    print(ROW.format(384, "trained", score(model, pairs), 86.72, 0, *price(384, "separate")))
    for key_dim, scores in EXPECTED.items():
        for query, expected in zip(QUERIES, scores, strict=True):
            swapped, start = copy.deepcopy(model), time.process_time()
            swap_attention(swapped, key_dim, query=query, inputs=inputs)
            seconds = time.process_time() - start
            cells = score(swapped, pairs), expected, seconds, *price(key_dim, query)
            print(ROW.format(key_dim, query, *cells), flush=True)
    # Any BERT: exact at the model's own width, near below it.
    before = encode(model, inputs[0])
    for key_dim in (384, 192, 96):
        swap_attention(swapped := copy.deepcopy(model), key_dim, inputs=inputs)
        error = (encode(swapped, inputs[0]) - before).norm() / before.norm()
        print(f"key width {key_dim}: relative error of sentence vectors {error:.1e}")


if __name__ == "__main__":
    main()
