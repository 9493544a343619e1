"""Half, a quarter and an eighth of the keys of a pre-trained sentence encoder, without training.

    pip install '.[hf,examples]'
    python examples/minilm.py STSB    # folder with train.csv and dev.csv of the STS benchmark

all-MiniLM-L6-v2 is BERT with 6 layers, H = 12 heads and d = 384.  The key cache of a key width K is
K numbers per token and layer.  The queries of "separate", "diagonal" and "full" have width K, too,
as in Cordonnier et al. 2020; "own" narrows keys alone.
"""

import argparse
import copy
import time
from pathlib import Path

from stsb import calibration, load, read, score

from fairseq_collab.adapters import swap_attention

#: Scores on the development set, at key widths 192, 96 and 48.
EXPECTED = {"separate": (0, 0, 0), "diagonal": (0, 0, 0), "full": (0, 0, 0), "own": (0, 0, 0)}
ROW = "{:>9}  {:8}  {:>5}  {:>8}  {:>5}  {:>7}  {:>9}"


def price(key_dim, query, d=384, heads=12, length=30):
    """One layer's weights of queries and keys; multiply-adds of a token that reads 30."""
    more = {"diagonal": heads * key_dim, "full": heads * key_dim**2}
    more |= {"separate": 0, "own": (heads - 1) * d * key_dim}
    weights = 2 * d * key_dim + more[query]
    return weights, weights + length * key_dim * (1 if query == "separate" else heads)


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--set", default="dev", help="or test")
    parser.add_argument("--pairs", type=int, help="the first pairs only")
    args = parser.parse_args(argv)
    pairs, inputs = read(args.folder, args.set)[: args.pairs], calibration(args.folder)
    model = load()
    print(ROW.format("key width", "query", args.set, "expected", "CPU s", "weights", "mult-adds"))
    whole = f"{score(model, pairs):.2f}"
    print(ROW.format(384, "trained", whole, 86.72, "", *price(384, "separate")), flush=True)
    for i, key_dim in enumerate((192, 96, 48)):
        for query, expected in EXPECTED.items():
            narrow, start = copy.deepcopy(model), time.process_time()
            swap_attention(narrow, key_dim, query=query, inputs=inputs)
            seconds, found = time.process_time() - start, score(narrow, pairs)
            cells = f"{found:.2f}", expected[i], f"{seconds:.1f}", *price(key_dim, query)
            print(ROW.format(key_dim, query, *cells), flush=True)
    # Any BERT: exact at the model's own width, near below it.
    before = model(**inputs[0]).last_hidden_state
    for key_dim in (384, 192, 96):
        swap_attention(narrow := copy.deepcopy(model), key_dim, inputs=inputs)
        error = (narrow(**inputs[0]).last_hidden_state - before).abs().max()
        print(f"key width {key_dim}: outputs differ by {error:.1e} at most")


if __name__ == "__main__":
    main()
