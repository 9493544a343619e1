"""Exact export of trained models to other engines.

plain             exports to fairseq's own model
vocabulary        reads dictionaries, and the pairs of languages of a model
engine_support    says what of a model an engine lacks
standard_weights  computes weights with which fairseq's attention equals one of ours
ct2, hf           export to CTranslate2; to Hugging Face's MarianMTModel
onnx              exports to ONNX Runtime; ``onnx_graphs`` defines its graphs, ``onnx_int8`` 8 bits
translate         the program in an ONNX folder, which does not import this project
check             translates in both engines and compares; ``onnx_check`` does so for ONNX
"""
