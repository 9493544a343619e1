"""What the heads of a trained model do, in the order of the data.

attention_weights  how all heads attend on a batch; their outputs, for gradients
measures           confidence, positions, rare tokens; the roles of a head
trees              gold trees, over the subwords of the model
syntax             the encoder's heads against the trees
importance         how much the loss depends on a head
relevance          how much the prediction depends on a head
votes              one head per group, elected by batches of a corpus
stages             all measures on one model and one subset, as heads.json holds them
"""
