"""fairseq-hydra-train as far as it gets without torch: the configuration of each job."""

from fairseq.distributed import utils


def call_main(cfg, main):
    """Stand in for the training of one job."""
    print("job", cfg.dataset.max_tokens)
    if cfg.dataset.max_tokens == 3:
        raise RuntimeError("the real reason")


utils.call_main = call_main

from fairseq_cli import hydra_train  # noqa: E402

hydra_train.cli_main()
