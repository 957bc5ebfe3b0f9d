"""What is on each page, as values: functions of the machine, or of records that were read, without a clock or a word of HTML.

Called by `broker.console.pages`. Touches the machine's tables and the rows of groups, to read; writes nothing.
"""
