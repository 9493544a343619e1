"""Making trained models smaller: collect evidence, offer cuts, choose a plan, build, refit.

shape              describes what stays of an attention or block, and counts its costs
draft              the model under construction: edited in place, then built once
evidence           statistics of one calibration pass, and prices that plans share
engine             the engines that run models, and which cuts each of them supports
cut, cuts          a way to make a model smaller: one class, one file each
plan               what may be cut; one shape for every site; the model that a plan gives
programme, solve   find the cheapest plan within budgets; the solver
shrink, front      meet a target; compute plans of several sizes
by_hand, gates     remove or convert the heads that the user names; keep heads with open gates
smaller            the result: a model, its plan, its predicted and measured loss
prices             predict the loss from cutting each part of a model
own                load cuts that a user wrote in a file
"""

#: The size that each kind of heads has, by the values of ``--to``: importing it imports nothing.
SIZES = {
    "collab": "key_dim",
    "separate": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
