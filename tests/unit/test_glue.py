"""Heads of a tiny BERT swapped on made-up tasks of GLUE's layout: runs, scores, table, refusals."""

from __future__ import annotations

import json
import os
import pickle
import random
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refusing

from collab_common.errors import UserError
from collab_common.main import main as fairseq_collab
from fairseq_collab.adapters.glue import classifier, tasks
from fairseq_collab.adapters.glue.tasks import TASKS
from fairseq_collab.commands import glue, glue_table
from fairseq_collab.results import published
from fairseq_collab.results.tables import mean
from fairseq_collab.runs.record import Record

pytestmark = pytest.mark.slow  # the import alone takes seconds
transformers = pytest.importorskip("transformers", reason="an optional dependency")

D = 16
WORDS = ("good", "fine", "bad", "poor", "a", "the", "film", "plot")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
TRAIN = ["--lr=0.01", "--batch-size=16", "--max-length=12", "--epochs=3", "--cpu"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A BERT that has learnt nothing, as it is saved after training on text."""
    folder = tmp_path_factory.mktemp("bert")
    vocabulary = {word: i for i, word in enumerate((*SPECIAL, *WORDS))}
    transformers.BertTokenizer(vocab=vocabulary).save_pretrained(folder)
    torch.manual_seed(1)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=D,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=20,
        initializer_range=0.2,  # so small a model does not start to learn with the usual 0.02
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences whose label is whether their one judgement is kind, as four tasks have them."""
    folder, draw = tmp_path_factory.mktemp("glue"), random.Random(1)
    for number, (split, size) in enumerate({"train": 160, "dev": 60}.items()):
        rows = []
        for _ in range(size):
            words = [draw.choice(WORDS[4:]) for _ in range(draw.randint(2, 5))]
            judgement = draw.choice(WORDS[:4])
            words.insert(draw.randint(0, len(words)), judgement)
            rows.append((" ".join(words), int(judgement in WORDS[:2])))
        write(folder / f"SST-2/{split}.tsv", "sentence\tlabel", [f"{s}\t{y}" for s, y in rows])
        write(folder / f"CoLA/{split}.tsv", None, [f"x\t{y}\t\t{s}" for s, y in rows])
        stsb = [f"{i}\t{s}\t{s}\t{5.0 * y}" for i, (s, y) in enumerate(rows)]
        write(folder / f"STS-B/{split}.tsv", "index\tsentence1\tsentence2\tscore", stsb)
        answer = ("contradiction", "entailment")
        mnli = [f"{s}\tthe film\tx\t{answer[y]}" for s, y in rows]
        for name in [["train"], ["dev_matched", "dev_mismatched"]][number]:
            header = "sentence1\tsentence2\tlabel1\tgold_label"
            write(folder / f"MNLI/{name}.tsv", header, mnli)
    return folder


def write(path: Path, header: str | None, rows: list[str]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join([*([header] if header else []), *rows]) + "\n", encoding="utf-8-sig")


def run(model: Path, data: Path, out: Path, *options: str, task: str = "sst2") -> Record:
    command = [str(model), str(data), "--task", task, "--out", str(out), *TRAIN, *options]
    assert glue.main(command) == 0
    return Record.read(out / "score.json")


@pytest.fixture(scope="module")
def runs(model: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fine-tuned; swapped at full size and at the least, scored at once and after fine-tuning."""
    out = tmp_path_factory.mktemp("runs")
    run(model, data, out / "whole")
    tuned = out / "whole" / "model"
    for key_dim in ("16", "1"):
        swap = ("--key-dim", key_dim)
        run(tuned, data, out / f"swapped-{key_dim}", *swap, "--epochs=0", "--method=swapped")
        run(tuned, data, out / f"again-{key_dim}", *swap)
    return out


def accuracy(folder: Path) -> float:
    return (Record.read(folder / "score.json").glue or {})["accuracy"]


def test_heads_are_swapped_and_trained_again(runs: Path) -> None:
    assert accuracy(runs / "whole") > 90
    assert accuracy(runs / "again-1") > 90
    whole, swapped = (Record.read(runs / name / "score.json") for name in ("whole", "swapped-16"))
    assert swapped.glue == whole.glue  # exact at full size
    assert swapped.valid_loss == pytest.approx(whole.valid_loss, abs=1e-5)
    small = Record.read(runs / "swapped-1" / "score.json")
    assert abs(small.valid_loss - whole.valid_loss) > 1e-4
    assert (whole.method, whole.key_dim, whole.train_updates) == ("concatenated", D, 30)
    assert (small.method, small.key_dim, small.train_updates) == ("swapped", 1, 0)
    assert Record.read(runs / "again-1" / "score.json").method == "collab"


def test_record_says_where_it_is_from(runs: Path) -> None:
    record = Record.read(runs / "again-1" / "score.json")
    assert (record.task, record.data, record.subset, record.sentences) == (
        "classification", "SST-2", "dev", 60,
    )  # fmt: skip
    assert (record.seed, record.arch) == (1, "BertForSequenceClassification")
    assert record.heads_by_site == {"encoder": [2, 2]}
    assert {"torch", "transformers", "torchmetrics"} <= record.versions.keys()
    assert record.hardware
    assert record.date
    assert record.command is not None
    assert record.command[:2] == ["fairseq-collab", "glue"]
    assert record.data_sha256


def test_parameters_are_what_the_swap_leaves(runs: Path) -> None:
    """Of an attention: queries and keys d x K each, mixing H x K, content bias H x d, values."""
    whole, small = (Record.read(runs / n / "score.json") for n in ("whole", "swapped-1"))
    heads, layers, key_dim = 2, 2, 1
    values = D * D + D
    assert whole.attention_parameters == layers * (2 * (D * D + D) + values)
    ours = 2 * D * key_dim + heads * key_dim + heads * D
    assert small.attention_parameters == layers * (ours + values)
    saved = whole.attention_parameters - small.attention_parameters
    assert whole.parameters - small.parameters == saved


def test_what_is_done_is_not_done_again(
    runs: Path, model: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = (runs / "whole" / "score.json").stat().st_mtime_ns
    run(model, data, runs / "whole")
    assert "it is there already" in capsys.readouterr().out
    assert (runs / "whole" / "score.json").stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"was started with training\.epochs=3, now 1 is asked"):
        run(model, data, runs / "whole", "--epochs=1")


def test_what_was_saved_is_loaded_again(runs: Path, data: Path, tmp_path: Path) -> None:
    saved = runs / "again-1" / "model"
    again = run(saved, data, tmp_path / "run", "--epochs=0", "--no-model")
    assert again.glue == Record.read(runs / "again-1" / "score.json").glue
    with pytest.raises(UserError, match="run: is finished and keeps no model; give --no-model"):
        run(saved, data, tmp_path / "run", "--epochs=0")
    assert (again.key_dim, again.method) == (1, "collab")
    assert not (tmp_path / "run" / "model").exists()
    with pytest.raises(UserError, match="has collaborative heads already, of key dimension 1"):
        run(saved, data, tmp_path / "twice", "--key-dim=2")


def test_table(runs: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tuned = runs / "whole" / "model"
    run(tuned, data, tmp_path / "cola", "--epochs=0", "--no-model", task="cola")
    capsys.readouterr()
    assert glue_table.main([str(runs), str(tmp_path / "cola"), "--out", str(tmp_path / "out")]) == 0
    text = (tmp_path / "out" / "table.md").read_text()
    assert capsys.readouterr().out == text
    lines = [line.split("|")[2:] for line in text.splitlines() if line.startswith("| Bert")]
    cells = [[cell.strip() for cell in line[:-1]] for line in lines]
    rows = [(method, key_dim) for method, key_dim, *_ in cells]
    assert rows == [
        ("concatenated", "16"), ("collab", "16"), ("swapped", "16"),
        ("collab", "1"), ("swapped", "1"),
    ]  # fmt: skip
    whole = accuracy(runs / "whole")
    matthews = (Record.read(tmp_path / "cola" / "score.json").glue or {})["matthews"]
    assert cells[0][5:] == [f"{matthews:.1f}", f"{whole:.1f}", f"{(whole + matthews) / 2:.1f}", ""]
    assert cells[1][5] == "-"  # not run on CoLA: no average, hence no change
    assert cells[1][-2:] == ["-", "-"]
    assert "| BERT-base  |             384 |" in text
    stored = json.loads((tmp_path / "out" / "table.json").read_text())
    assert stored["version"] == 1
    assert len(stored["runs"]) == 6
    assert all("command" not in facts and facts["commit"] for facts in stored["runs"])


def test_change_is_from_the_whole_model(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert glue_table.main([str(runs)]) == 0
    rows = [line for line in capsys.readouterr().out.splitlines() if "| swapped" in line]
    (line,) = (row for row in rows if row.split("|")[3].strip() == "1")
    change = accuracy(runs / "swapped-1") - accuracy(runs / "whole")
    assert line.split("|")[-2].strip() == f"{change:+.1f}"


def test_the_same_model_twice(runs: Path, data: Path, tmp_path: Path) -> None:
    run(runs / "whole" / "model", data, tmp_path / "twin", "--epochs=0", "--no-model")
    with pytest.raises(UserError, match=r"the same model with the same seed \(1\); leave one"):
        glue_table.main([str(runs), str(tmp_path / "twin")])


def test_other_models_are_no_seeds(runs: Path, tmp_path: Path) -> None:
    """BERT, small or large, has one name."""
    shutil.copytree(runs / "whole", tmp_path / "large")
    facts = json.loads((tmp_path / "large" / "score.json").read_text())
    facts |= {"seed": 9, "attention_parameters": 1 + facts["attention_parameters"]}
    (tmp_path / "large" / "score.json").write_text(json.dumps(facts))
    with pytest.raises(UserError, match=r"differ in attention_parameters: .*; name one with"):
        glue_table.main([str(runs), str(tmp_path / "large")])


def test_published_averages_are_means_of_all_numbers() -> None:
    """Which is how ours are made, too."""
    for one in published.GLUE["models"]:
        numbers = [value for values in one["scores"].values() for value in values]
        assert mean(numbers) == pytest.approx(one["average"], abs=0.06)
        assert all(len(one["scores"][name]) == len(TASKS[name].metrics) for name in one["scores"])


# ---- tasks ---------------------------------------------------------------------------------------


def test_a_number_is_predicted(model: Path, data: Path, tmp_path: Path) -> None:
    record = run(model, data, tmp_path / "run", "--no-model", task="stsb")
    assert set(record.glue or {}) == {"pearson", "spearman"}
    assert (record.glue or {})["pearson"] > 70


def test_both_sets_of_mnli(model: Path, data: Path, tmp_path: Path) -> None:
    record = run(model, data, tmp_path / "run", "--epochs=1", "--no-model", task="mnli")
    found = record.glue or {}
    assert found["accuracy"] == found["accuracy_mismatched"]  # the same sentences here


def test_scores() -> None:
    predicted, right = torch.tensor([1, 1, 0, 0, 1]), torch.tensor([1, 0, 0, 1, 1])
    both = tasks.scores(TASKS["mrpc"], predicted, right)  # TP 2, FP 1, FN 1, TN 1
    assert both == {"f1": pytest.approx(100 * 4 / 6, abs=1e-4), "accuracy": pytest.approx(60.0)}
    found = tasks.scores(TASKS["cola"], predicted, right)["matthews"]
    assert found == pytest.approx(100 * (2 * 1 - 1 * 1) / (3 * 3 * 2 * 2) ** 0.5, abs=1e-4)
    numbers, other = torch.tensor([1.0, 2, 3, 9]), torch.tensor([1.0, 4, 9, 16])
    found = tasks.scores(TASKS["stsb"], numbers, other)
    assert found["spearman"] == pytest.approx(100, abs=1e-3)
    assert 0 < found["pearson"] < 100
    with pytest.raises(UserError, match="all predictions of STS-B are the same: pearson is undef"):
        tasks.scores(TASKS["stsb"], torch.ones(4), other)


#: First lines of GLUE's own files, without the columns that do not matter.
HEADERS = {
    "sst2": "sentence\tlabel",
    "mrpc": "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
    "stsb": "index\tgenre\tsentence1\tsentence2\tscore",
    "qqp": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
    "mnli": "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label",
    "qnli": "index\tquestion\tsentence\tlabel",
    "rte": "index\tsentence1\tsentence2\tlabel",
    "wnli": "index\tsentence1\tsentence2\tlabel",
}


@pytest.mark.parametrize("name", HEADERS)
def test_columns_of_every_task(name: str, tmp_path: Path) -> None:
    task, columns = TASKS[name], HEADERS[name].split("\t")
    answer = task.classes[1] if task.classes else "2.5"
    row = {**{column: f"<{column}>" for column in columns}, task.label: answer}
    write(tmp_path / "x.tsv", HEADERS[name], ["\t".join(row.values())])
    found = tasks.read(tmp_path / "x.tsv", task)
    assert found.text == [tuple(f"<{column}>" for column in task.text)]
    assert found.labels.tolist() == [1 if task.classes else 2.5]


def test_cola_has_no_header_and_quotes_are_letters(tmp_path: Path) -> None:
    write(tmp_path / "x.tsv", None, ['gj04\t1\t\tHe said "no.', "gj04\t0\t*\tNo he."])
    found = tasks.read(tmp_path / "x.tsv", TASKS["cola"])
    assert found.text == [('He said "no.',), ("No he.",)]
    assert found.labels.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("name", "lines", "message"),
    [
        ("sst2", ["text\tlabel", "a\t1"], "x.tsv: has no column 'sentence'; give GLUE's own"),
        ("sst2", ["sentence\tlabel", "a\t1", "b"], "x.tsv:3: has 1 columns, not 2"),
        ("sst2", ["sentence\tlabel", "a\t2"], "x.tsv:2: label '2' is none of 0, 1"),
        ("stsb", ["sentence1\tsentence2\tscore", "a\tb\tc"], "x.tsv:2: label 'c' is no number"),
        ("sst2", ["sentence\tlabel"], "x.tsv: holds no example"),
        ("sst2", None, "x.tsv: cannot be read: No such file or directory"),
    ],
)
def test_faulty_files(name: str, lines: list[str] | None, message: str, tmp_path: Path) -> None:
    if lines:
        write(tmp_path / "x.tsv", None, lines)
    with refusing(message):
        tasks.read(tmp_path / "x.tsv", TASKS[name])


def test_cut_lines_of_qqp_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole = "1\t2\t3\ta\tb\t1"
    write(tmp_path / "x.tsv", HEADERS["qqp"], [whole, "1\t2\t3\ta", whole])
    assert len(tasks.read(tmp_path / "x.tsv", TASKS["qqp"])) == 2
    assert "1 lines lack columns and are left out" in capsys.readouterr().err


# ---- refusals ------------------------------------------------------------------------------------


def refusal(*command: Any) -> str:
    with pytest.raises(UserError) as refused:
        glue.main([*map(str, command), *TRAIN])
    return str(refused.value)


def test_folders_that_are_not_there(model: Path, data: Path, tmp_path: Path) -> None:
    rest = ("--task=sst2", "--out", tmp_path / "run")
    downloaded = "nothing is downloaded: give"
    assert refusal("bert-base-cased", data, *rest) == (
        f"bert-base-cased: there is no such folder; {downloaded} a folder with a model of Hugging "
        "Face's"
    )
    assert f"there is no config.json in it; {downloaded}" in refusal(data, data, *rest)
    assert f"there is no such folder; {downloaded}" in refusal(model, tmp_path / "no", *rest)
    assert "QNLI/train.tsv: cannot be read" in refusal(model, data, "--task=qnli", *rest[1:])
    assert not (tmp_path / "run" / "config.yaml").exists()  # another try may have other options


def test_offline_whatever_the_environment_says(
    without_weights: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder without weights is not looked up by its name."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    with pytest.raises(UserError, match=r"cannot be loaded: .*no file named model\.safetensors"):
        classifier.load(without_weights, TASKS["sst2"])
    assert os.environ["HF_HUB_OFFLINE"] == "1"


@pytest.fixture
def without_weights(model: Path, tmp_path: Path) -> Path:
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(model / name, tmp_path)
    return tmp_path


class Evil:
    def __reduce__(self) -> Any:
        return print, ("executed",)


def test_weights_execute_nothing(without_weights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    weights = without_weights / "pytorch_model.bin"
    torch.save({"embeddings.word_embeddings.weight": Evil()}, weights)
    with pytest.raises(UserError, match="cannot be loaded"):
        classifier.load(without_weights, TASKS["sst2"])
    weights.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(UserError, match="cannot be loaded"):
        classifier.load(without_weights, TASKS["sst2"])
    assert "executed" not in capsys.readouterr().out


def test_remote_code_is_refused(model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "evil", "auto_map": {"AutoConfig": "evil.Config"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "evil.py").write_text("raise SystemExit('executed')")
    with pytest.raises(UserError, match="cannot be loaded"):
        classifier.load(tmp_path, TASKS["sst2"])


def test_weights_that_are_missing(model: Path, tmp_path: Path) -> None:
    """transformers would only warn, and train what is random."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(model, tmp_path, dirs_exist_ok=True)
    weights = load_file(model / "model.safetensors")
    left = {name: weight for name, weight in weights.items() if "layer.1" not in name}
    save_file(left, tmp_path / "model.safetensors")
    with pytest.raises(UserError, match="lacks 16 weights of a BertForSequenceClassification"):
        classifier.load(tmp_path, TASKS["sst2"])


def test_examples_longer_than_the_model(model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="--max-length: the model reads at most 20 tokens, not 21"):
        run(model, data, tmp_path / "run", "--max-length=21")


def test_a_loss_that_is_no_number(model: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"the loss is \S+ at update \d+; lower --lr"):
        run(model, data, tmp_path / "run", "--lr=1e30")
    assert json.loads((tmp_path / "run" / "failed.json").read_text())["verdict"] == "diverged"
    with pytest.raises(UserError, match="no finished run; run: diverged"):
        glue_table.main([str(tmp_path)])


def test_other_runs_have_other_tables(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fairseq_collab(["table", str(runs)]) == 1
    assert "fairseq-collab glue-table" in capsys.readouterr().err
