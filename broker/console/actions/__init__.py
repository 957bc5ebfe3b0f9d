"""What operators do by the console, each behind a confirmation: topics, groups, transactions.

An action has two halves: a *plan* says what would be done, of the machine as it is (`broker.console.confirming`), and
*do* does it, by the handler that Kafka's clients would get to (`asking`), and never of anything else than the page
showed: a topic is named by its id, a transaction by when it began. GET only plans; only POST does.

Called by `broker.http_composition`. Touches the handlers of Kafka's APIs, and the pages of `broker.console`.
"""
