"""Hugging Face's classifiers on GLUE's tasks: data, model, training, scores.

Cordonnier, Loukas, Jaggi 2020 (arXiv 2006.16362), beyond translation: fine-tune a trained model on
a task, swap its heads for collaborative ones of key dimension K, fine-tune again.  Everything is
read from local folders; nothing is downloaded.
"""
