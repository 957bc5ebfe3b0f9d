"""Who somebody is, and what they may do, as Kafka's authenticators and authorizer say it.

    principal_names   names in certificates as Java has them, and what rules make of them
    authorizer        the decision, exactly Kafka's, remembered until the ACLs change
    audit             lines about refusals and changes, and how many of them
    rights            both together, as handlers ask

Pure: it may touch the table of ACLs and who asks, and nothing else. Where an agent has no authorizer
none of that is made, and everybody may do everything. Called by `broker.edge`, the dispatcher and
handlers.
"""
