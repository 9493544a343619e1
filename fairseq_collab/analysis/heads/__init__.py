"""What the heads of a trained model do, in the order of the data.

source          the model
weights         how all heads attend on a batch of them; their outputs, for gradients
measures        confidence, entropy, positions, rare tokens; how alike heads are
conllu, subwords, syntax    gold trees, over the subwords of the model, against the encoder's heads
importance      how much the loss depends on a head
relevance       how much the prediction does; ratio, released: two ways to hand relevance on;
                parts: what is too large for the memory in one piece
roles           which heads are positional, syntactic, or for rare tokens
analysis        all of it, on one model and one subset
content         heads.json, which holds it
"""
