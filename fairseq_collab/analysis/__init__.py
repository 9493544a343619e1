"""What the heads of a trained model do, in the order of the data.

scores       queries, keys and values of every kind of attention; hooks on all attentions of a model
weights      how all heads attend on a batch; their outputs, for gradients
measures     confidence, positions, rare tokens
trees, subwords, syntax    gold trees, over the subwords of the model, against the encoder's heads
importance   how much the loss depends on a head
relevance    how much the prediction depends on a head; ratio: the rule that propagates relevance
roles        which heads are positional, syntactic, or for rare tokens
stages       all measures on one model and one subset, one after the other
content      heads.json, which holds them
"""
