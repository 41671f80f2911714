"""The algorithms once more, in NumPy float64, with gradients written by hand: the judge of ``grpo_zero/algorithms``.

Read it as a lecture, in this order: ``softmax`` (what a policy is, and its entropy), ``advantages`` (how an answer is compared
with its group), ``ratios``, ``objectives`` and ``kl`` (what one token contributes), ``averages`` (how tokens are added up),
``losses`` (the whole), ``rewards`` and ``groups`` (what happens before), ``statistics`` (what to expect), ``toy`` (a policy of
a few hundred numbers that learns by these files alone).

Each value has its derivative beside it: ``f`` and ``f_gradient``. A gradient takes the arguments of its function and the
derivative of some scalar with respect to the function's value (``upstream``), and returns the derivative of that scalar with
respect to the function's first argument. Finite differences judge them (``tests/unit/reference``).
"""
