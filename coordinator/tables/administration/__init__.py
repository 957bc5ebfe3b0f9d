"""Tables of what administrators say: who may log in, who may do what, and how much of it; and configs.

Pure, like all tables. Users and tokens, ACLs, quotas, configs that were set at run time. Called by
`apply` and read by the broker.
"""
