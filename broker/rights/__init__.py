"""Who may do what: Kafka's StandardAuthorizer over the ACLs in the log, and what is told of it.

    authorizer   the decision, exactly Kafka's, remembered until the ACLs change
    audit        lines about refusals and changes, and how many of them
    rights       both together, as handlers ask

Pure: it may touch the table of ACLs and who asks, and nothing else. Where an agent has no authorizer
none of this is made, and everybody may do everything. Called by the dispatcher and by handlers.
"""
