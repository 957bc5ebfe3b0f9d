"""The embedded schema registry: Confluent's REST API over schemas that lie in the metadata log.

    rest ─▶ subjects ─▶ parsed_schema ─▶ protocol.schemas                          text -> what it says
              │            ├────▶ canonical                                 the text that is kept
              │            └────▶ compatibility_avro, _json, _protobuf      may this follow that?
              └▶ coordinator.tables.schemas (ids, versions, rules), by commands

Only `rest` waits. A schema is judged against what the agent's replica holds, and the command says
of which position that was: apply refuses it when the subject has changed since, and it is judged
anew.

Left out: contexts other than the default one, metadata and rule sets (data contracts), exporters. Called by the composition root, which serves `rest`.
"""
