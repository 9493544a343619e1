"""Measures of what the heads of a trained model do.

attention_weights  records how all heads attend on a batch, and their outputs for gradients
measures           computes confidence, positions and rare tokens; assigns roles to heads
trees              reads gold trees and aligns them with the model's subwords
syntax             scores the encoder's heads against the trees
importance         measures how much the loss depends on a head
relevance          measures how much the prediction depends on a head
votes              elects one head per group by the votes of batches
stages             runs all measures on one model and one subset, for heads.json
"""
