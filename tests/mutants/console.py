"""Mutants of the console: what other sites may do with it, who sees what, who acts, and how much a page takes (P15).

Beside them those of what it shares with every HTTP listener (`tests.mutants.http`).
"""

from tests.mutants.mutant import Mutant

MUTANTS = (
    Mutant(
        name="where-a-form-comes-from-is-not-looked-at",
        promise="P15",
        before="    if elsewhere or (head.origin is not None and not _is_same(head.origin, head.host)):",
        after="    if elsewhere:",
        tests=(
            "test_a_page_of_another_site_changes_nothing",
            "test_a_form_of_another_site_or_of_nowhere_does_nothing",
        ),
        why="A page that an operator happens to look at deletes topics, by browsers that tell no more than Origin.",
    ),
    Mutant(
        name="any-name-leads-to-an-agent",
        promise="P15",
        before="    if head.host is not None and head.host not in names:",
        after="    if False:",
        tests=(
            "test_a_name_that_somebody_else_may_have_is_misdirected",
            "test_a_page_of_another_name_is_not_let_in",
        ),
        why="A page whose own name is made to lead to the agent (DNS rebinding) reads and does everything there.",
    ),
    Mutant(
        name="pages-may-be-framed",
        promise="P15",
        before=" base-uri 'none'; frame-ancestors 'none'\"",
        after=" base-uri 'none'\"",
        tests=("test_no_page_may_be_framed_or_run_what_is_not_ours_and_no_browser_keeps_it",),
        why="Another site lays the console under its own page, and has an operator click in it.",
    ),
    Mutant(
        name="what-a-record-has-in-it-is-html",
        promise="P15",
        before="        autoescape=True,",
        after="        autoescape=False,",
        tests=(
            "test_the_page_of_a_record_has_its_facts_its_headers_and_its_bytes_to_save",
            "test_what_is_refused_comes_back_with_the_form_as_it_was_filled_in",
        ),
        why="Whoever may produce a record writes on the page of an operator who looks at it.",
    ),
    Mutant(
        name="two-challenges-are-one-header",
        promise="P15",
        before="    answer.headers.extend(headers)\n",
        after="    answer.headers.update({name: ', '.join(each for _, each in headers) for name, _ in headers})\n",
        tests=("test_a_browser_is_asked_for_a_token_and_a_viewer_sees_pages_and_no_log",),
        why="Chromium asks nobody for a password, so nobody gets to see the console by it.",
    ),
    Mutant(
        name="viewers-may-act",
        promise="P15",
        before="    Route(method, action.path, Role.OPERATOR, partial(handler, action))",
        after="    Route(method, action.path, Role.VIEWER, partial(handler, action))",
        tests=("test_viewers_see_no_buttons_and_may_not_act_and_operators_acts_are_audited",),
        why="Who may look and change nothing deletes topics, and the audit tells of nobody.",
    ),
    Mutant(
        name="to-ask-for-a-confirmation-is-to-act",
        promise="P15",
        before="    by = await _operator(request)\n"
        "    return await _confirm(request, action, by, Parameters(dict(request.query)))",
        after="    return await _do(action, request)",
        tests=("test_to_ask_changes_nothing",),
        why="A link, which any site may have, deletes a topic when an operator follows it.",
    ),
    Mutant(
        name="a-name-that-is-to-be-typed-need-not-be",
        promise="P15",
        before="    if confirmation.typed and typed != confirmation.typed:",
        after="    if confirmation.typed and typed and typed not in confirmation.typed:",
        tests=("test_a_topic_is_deleted_by_whoever_types_its_name_and_told_once_it_is_done",),
        why="One click too many deletes a topic for good.",
    ),
    Mutant(
        name="a-reload-writes-a-second-record",
        promise="P15",
        before="    written = urlencode(RecordAsked(topic.name, record.partition, offset).query())\n"
        '    return web.Response(status=303, headers={"Location": f"{request.path}?{written}"})',
        after="    asked = RecordAsked(topic.name, record.partition, offset)\n"
        '    return await page(request, "produced", {"asked": asked})',
        tests=(
            "test_the_page_that_says_where_a_record_was_written_may_be_loaded_again_and_writes_none",
        ),
        why="Whoever loads the page again, or goes back and forth, sends the form again: consumers read it twice.",
    ),
    Mutant(
        name="a-readers-role-is-a-right-to-all-records",
        promise="P15",
        before="        if self.rights is None or self.rights.permits(\n"
        "            requester, api, operation, ResourceType.TOPIC, topic\n"
        "        ):",
        after="        if True:",
        tests=("test_where_rights_are_on_a_reader_and_an_operator_need_read_on_the_topic",),
        why="What was refused is told by no audit, and pages show what is beside records.",
    ),
    Mutant(
        name="records-are-read-as-an-operator-acts",
        promise="P15",
        before="(self._requester, api_key, version, request, seconds=left)",
        after="(self._requester, api_key, version, request, seconds=left, by_role=True)",
        tests=("test_pages_of_records_take_of_the_quotas_of_whoever_looks",),
        why="Neither ACLs nor quotas hold for fetches of pages; one check stands between a reader and all records.",
    ),
    Mutant(
        name="an-operator-is-a-super-user-from-then-on",
        promise="P15",
        before="        node = copy.copy(self._node)\n",
        after="        node = self._node\n",
        tests=("test_whose_role_is_the_right_needs_no_acl_and_is_audited_once_by_their_name",),
        why="After the first action of the console its operator needs no ACL at the agent, and all others are refused.",
    ),
    Mutant(
        name="a-page-of-records-fetches-without-end",
        promise="P15",
        before="            or self._bytes >= bounds.bytes * factor\n",
        after="",
        tests=("test_a_search_that_finds_nothing_ends_at_the_bytes_that_a_page_may_fetch",),
        why="One search for what is not there reads a topic as fast as the store gives it, for every page anew.",
    ),
)
