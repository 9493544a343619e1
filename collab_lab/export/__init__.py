"""Trained models for other engines, exactly.

model             as fairseq's own model; its dictionaries; what engines cannot compute
standard_weights  weights with which fairseq's attention computes one of ours
ct2, hf           for CTranslate2; for Hugging Face's MarianMTModel
onnx              for ONNX Runtime: ``onnx_graphs`` has its graphs, ``onnx_int8`` weights in 8 bits
translate         the program in an ONNX folder, which imports nothing of this project
check             the same sentences here and in the other engine; ``onnx_check``: of an ONNX folder
"""
