"""Making trained models smaller: collect evidence, offer cuts, choose a plan, build, refit.

shape              what stays of a site, and what that costs
draft, retained    the model to be, edited in place, built once; one that keeps lists of heads
gates, cuttable    open gates; the model that is priced and cut: it has no gates and no groups
evidence           what a pass shows, and prices that plans share
engine             what runs models, and what it keeps of a smaller one
cut, cuts          something that can be taken from a model: one class, one file each
plan               what may be cut; a shape of every site
planner            finds the cheapest plan from the offers of cuts; ``knapsack``: the solver
apply, smaller     from a plan to the smaller model, step by step; the result
shrink, front      plans that are found; several sizes of them
by_hand            plans that are written: heads removed or converted as stated
price_list         what each part of a model is worth
own_cuts           loads a user's cuts from a file
"""

#: The option with the size of each kind of heads, by the values of ``--to``.  Importing this file
#: imports nothing else.
SIZE_OPTIONS = {
    "collab": "key_dim",
    "separate": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
