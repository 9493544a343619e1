"""Export a trained model to CTranslate2, and translate the lines of standard input.

    echo "A dog runs." | python examples/export.py small.pt DATA ct2-model

The data folder has the subword model, ``spm.model``.
"""

import subprocess
import sys

import ctranslate2
import sentencepiece


def main(checkpoint, data, out):
    command = ["fairseq-collab", "export", checkpoint, data, "--format", "ct2", "--out", out]
    subprocess.run(command, check=True)
    pieces = sentencepiece.SentencePieceProcessor(f"{data}/spm.model")
    sources = pieces.encode([line.strip() for line in sys.stdin], out_type=str)
    like_fairseq = {"max_decoding_length": 200, "suppress_sequences": [["<blank>"]]}
    results = ctranslate2.Translator(out).translate_batch(sources, beam_size=5, **like_fairseq)
    for result in results:
        print(pieces.decode(result.hypotheses[0]))


if __name__ == "__main__":
    main(*sys.argv[1:])
