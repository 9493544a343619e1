"""Find a smaller model that meets a cache or size target at the lowest loss of quality."""

#: What a share can be of, as :func:`.cost.totals` names it.
RESOURCES = ("cache", "parameters")
