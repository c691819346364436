/* Records the cases of llama.cpp's tests/test-chat.cpp, and what llama.cpp itself makes of their texts.  make.sh puts
 * this file into a copy of that test, in place of its checks.  Standard output gets a JSON object, one case a line:
 *
 *   tools   the tools of all cases, in OpenAI's shape
 *   cases   template, input (the answer's text), prompt (the end of the prompt: the answer's turn), tools (indices),
 *           start and ends (the tags of reasoning), preserved (the control tokens that the text shows), thinking,
 * parallel, required, partial (the text is the beginning of an answer), reasoning (the format of the
 *           test), messages and schema (only whether there are any), expect (the message that the test expects), and
 *           parsed (what llama.cpp makes of the text when it separates reasoning), or error
 *
 * A message is {content, reasoning, calls: [[name, arguments, id]]}. */
static std::vector<std::string> all_tools;
static std::vector<std::string> all_cases;

static json recorded(const common_chat_msg & msg) {
    json calls = json::array();
    for (const auto & call : msg.tool_calls) calls.push_back(json::array({ call.name, call.arguments, call.id }));
    return { { "content", msg.content }, { "reasoning", msg.reasoning_content }, { "calls", calls } };
}

static void record(const std::string & path, common_chat_templates * tmpls,
                   const std::function<void(peg_test_case &)> & init, bool) {
    peg_test_case tc;
    init(tc);
    json one;
    one["template"] = path.substr(path.rfind('/') + 1, path.rfind('.') - path.rfind('/') - 1);
    one["input"]    = tc.input;
    json indices = json::array();
    for (const auto & tool : tc.params.tools) {
        const json function = { { "name", tool.name }, { "parameters", json::parse(tool.parameters) } };
        const std::string text = json{ { "type", "function" }, { "function", function } }.dump();
        const auto at = std::find(all_tools.begin(), all_tools.end(), text);
        indices.push_back(at - all_tools.begin());
        if (at == all_tools.end()) all_tools.push_back(text);
    }
    one["tools"]     = indices;
    one["thinking"]  = tc.params.enable_thinking;
    one["parallel"]  = tc.params.parallel_tool_calls;
    one["required"]  = tc.params.tool_choice == COMMON_CHAT_TOOL_CHOICE_REQUIRED;
    one["partial"]   = tc.is_partial;
    one["reasoning"] = tc.params.reasoning_format != COMMON_REASONING_FORMAT_NONE;
    one["messages"]  = !tc.params.messages.empty();
    one["schema"]    = !tc.params.json_schema.empty();
    one["continues"] = tc.params.continue_final_message != COMMON_CHAT_CONTINUATION_NONE;
    one["expect"]    = recorded(tc.expect);
    if (tc.params.messages.empty()) tc.params.messages = { message_user };
    tc.params.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
    try {
        make_peg_parser parser(tmpls, tc.params);
        one["prompt"] = parser.params_.generation_prompt;
        one["start"]  = parser.params_.thinking_start_tag;
        one["ends"]   = json(parser.params_.thinking_end_tags);
        one["preserved"] = json(parser.params_.preserved_tokens);
        one["parsed"] = recorded(parser.parse(tc.input, tc.is_partial));
    } catch (const std::exception & e) {
        one["error"] = e.what();
    }
    all_cases.push_back(one.dump());
}

static void write_list(const std::vector<std::string> & lines) {
    for (size_t i = 0; i < lines.size(); i++) std::cout << lines[i] << (i + 1 < lines.size() ? ",\n" : "\n");
}

static void write_cases() {
    std::cout << "{\"tools\": [\n";
    write_list(all_tools);
    std::cout << "], \"cases\": [\n";
    write_list(all_cases);
    std::cout << "]}\n";
}
