"""An eighth and a sixteenth of the keys of all-MiniLM-L6-v2, fine-tuned on the STS benchmark.

    python examples/finetune.py STSB --key-dim 24 --query own    # minutes on one core

Regression of cosine similarities on human ratings: 200 updates of 16 pairs, AdamW, learning rate
5e-5 after 20 updates of warm-up, then falling to zero.  With ``--key-dim 384`` the trained heads.
"""

import argparse
import time
from pathlib import Path

import torch
from stsb import batches, calibration, cosines, encode, load, read, score
from torch.optim.lr_scheduler import LambdaLR

from collab_lab import swap_attention

UPDATES, WARMUP, PAIRS = 200, 20, 16


def finetune(model, pairs, seed):
    torch.manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    rate = LambdaLR(optimizer, lambda i: min((i + 1) / WARMUP, (UPDATES - i) / (UPDATES - WARMUP)))
    model.train()
    for some in torch.randperm(len(pairs)).split(PAIRS)[:UPDATES]:
        chosen = pairs.iloc[some.tolist()]
        one, other = (encode(model, next(batches(chosen[i]))) for i in (0, 1))
        target = torch.tensor(chosen[2].to_numpy(), dtype=one.dtype) / 5
        torch.nn.functional.mse_loss(torch.cosine_similarity(one, other), target).backward()
        optimizer.step()
        optimizer.zero_grad()
        rate.step()
    model.eval()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--key-dim", type=int, default=48)
    parser.add_argument("--query", default="own", help="own, full, diagonal or separate")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    model, dev = load(), read(args.folder, "dev")
    if args.key_dim < model.config.hidden_size:
        inputs = calibration(args.folder)
        swap_attention(model, args.key_dim, query=args.query, inputs=inputs)
    before, start = score(cosines(model, dev), dev), time.process_time()
    finetune(model, read(args.folder, "train"), args.seed)
    seconds = time.process_time() - start
    after = score(cosines(model, dev), dev)
    print(f"{before:.2f} before, {after:.2f} after {UPDATES} updates, {seconds:.0f} CPU s")


if __name__ == "__main__":
    main()
