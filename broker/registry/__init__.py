"""The embedded schema registry: Confluent's REST API over schemas that lie in the metadata log.

    rest ─▶ subject_rights (whose topics' ACLs count)
      ├───▶ subjects ─▶ coordinator.tables.schemas (ids, versions, rules), by commands
      └───▶ checker ══▶ checks ─▶ parsed_schema ─▶ protocol.schemas            text -> what it says
            (process)                ├────▶ canonical                      the text that is kept
                                     └────▶ compatibility_avro, _json, _protobuf
                                                                       may this follow that?

Only `rest`, `checker` and the process behind it wait. A schema is compared with what the agent's
replica holds, and the command says of which position that was: apply refuses it when the subject has
changed since, and it is compared anew. Texts are read in a process of their own, since a hostile one
can cost seconds and gigabytes; the agent's loop only passes them on.

Left out: contexts other than the default one, metadata and rule sets (data contracts), exporters.
Called by the composition root, which serves `rest` and owns the checker.
"""
