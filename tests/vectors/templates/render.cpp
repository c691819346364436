/* Renders conversations with llama.cpp's chat templates: what its server sends to the model.  make.sh builds and runs
 * it.
 *
 *   render CONVERSATIONS FOLDER
 *
 * reads CONVERSATIONS and every FOLDER/sources/NAME.jinja, and writes in FOLDER:
 *
 *   contexts.json   the distinct sets of variables that common/chat.cpp gives to the templates, one a line
 *   expected.tsv    a line for each template and conversation: name, conversation, line of the context, text, prompt
 *   texts.json      all texts and prompts by their hash
 *   templates.json  what llama.cpp finds out about each template: its abilities and what else ends an answer
 *
 * TEXT is what the template makes of the context.  PROMPT is what llama.cpp makes of the conversation: "=" if it is the
 * same.  Each is LENGTH:HASH, in bytes and of 64-bit FNV-1a, or an exception's message without its place, as a JSON
 * string.
 *
 * The contexts are taken from llama.cpp itself: the linker puts the functions below in front of its own (--wrap).  The
 * clock is stopped in the same way. */
#include "chat.h"
#include "jinja/runtime.h"
#include "log.h"

#include <algorithm>
#include <chrono>
#include <cinttypes>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

using json = common_json;

static const std::time_t NOW = 1784980800;   // 25 July 2026, 12:00 UTC
static const char *const BOS = "<s>", *const EOS = "</s>";
/* Set by common/chat.cpp outside of the variables that global_from_json gets. */
static const char *const MORE[] = {"preserve_thinking", "clear_thinking", "truncate_history_thinking", "drop_thinking",
                                   "reasoning_strength"};

static std::optional<json> context;   // of the prompt that is being made

#define GLOBAL_FROM_JSON "_ZN5jinja16global_from_jsonI11common_jsonEEvRNS_7contextERKT_b"
void real_global_from_json(jinja::context &, const json &, bool) asm("__real_" GLOBAL_FROM_JSON);
void wrap_global_from_json(jinja::context &, const json &, bool) asm("__wrap_" GLOBAL_FROM_JSON);
void wrap_global_from_json(jinja::context &ctx, const json &variables, bool mark) {
    // Only a prompt has a date: the analysis of a template renders it without.  The first is the one that counts.
    if (!context && variables.contains("date_string")) {
        context = variables;
        for (const char *name : MORE) {
            const auto value = ctx.get_val(name);
            if (!value->is_undefined()) (*context)[name] = json::parse(jinja::value_to_json(value, -1, ", ", ": "));
        }
    }
    real_global_from_json(ctx, variables, mark);
}
extern "C" std::time_t __wrap_time(std::time_t *at) {
    if (at) *at = NOW;
    return NOW;
}
std::chrono::system_clock::time_point wrap_now() asm("__wrap__ZNSt6chrono3_V212system_clock3nowEv");
std::chrono::system_clock::time_point wrap_now() { return std::chrono::system_clock::from_time_t(NOW); }

static std::string read(const std::filesystem::path &path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw std::runtime_error("cannot read " + path.string());
    return {std::istreambuf_iterator<char>(in), {}};
}

static std::map<std::string, std::string> texts;   // by hash

/* LENGTH:HASH of a text, which is kept. */
static std::string named(const std::string &text) {
    uint64_t hash = 14695981039346656037u;
    for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
    char name[64];
    snprintf(name, sizeof name, "%zu:%016" PRIx64, text.size(), hash);
    const auto [at, is_new] = texts.emplace(name, text);
    if (!is_new && at->second != text) throw std::runtime_error("two texts have the same hash");
    return name;
}
/* The engine puts the place before the message, and so do its callers. */
static std::string quoted(const std::string &message) {
    static const std::string before = "\nError: ";
    const size_t at = message.rfind(before);
    return json(at == std::string::npos ? message : message.substr(at + before.size())).dump_safe();
}

/* The text that common/chat.cpp's common_chat_template_direct_apply gets from the engine. */
static std::string render(const common_chat_template &tmpl, const json &variables) {
    jinja::context ctx(tmpl.source());
    real_global_from_json(ctx, variables, true);
    jinja::runtime runtime(ctx);
    return jinja::runtime::gather_string_parts(runtime.execute(tmpl.prog))->as_string().str();
}

static common_chat_templates_inputs inputs_of(const json &conversation) {
    common_chat_templates_inputs inputs;
    inputs.messages = common_chat_msgs_parse_oaicompat(conversation.at("messages"));
    if (conversation.contains("tools")) inputs.tools = common_chat_tools_parse_oaicompat(conversation.at("tools"));
    inputs.add_generation_prompt = conversation.value("add_generation_prompt", true);
    inputs.enable_thinking = conversation.value("enable_thinking", true);
    inputs.parallel_tool_calls = true;
    inputs.reasoning_format = COMMON_REASONING_FORMAT_DEEPSEEK;   // the server's default
    if (conversation.contains("variables")) {
        for (const auto &[key, value] : conversation.at("variables").items()) {
            inputs.chat_template_kwargs[key] = value.dump();
        }
    }
    return inputs;
}

int main(int argc, char **argv) {
    if (argc != 3) return std::cerr << "usage: render CONVERSATIONS FOLDER\n", 2;
    setenv("TZ", "UTC", 1);
    common_log_set_verbosity_thold(-1);
    const json conversations = json::parse(read(argv[1]));
    const std::filesystem::path folder = argv[2];
    std::vector<std::filesystem::path> sources;
    for (const auto &entry : std::filesystem::directory_iterator(folder / "sources")) sources.push_back(entry.path());
    std::sort(sources.begin(), sources.end());

    std::map<std::string, size_t> contexts;   // their lines
    std::vector<std::string> lines;
    std::ofstream expected(folder / "expected.tsv"), about(folder / "templates.json");
    about << "{\n";
    for (const auto &path : sources) {
        const std::string name = path.stem().string(), source = read(path);
        const auto templates = common_chat_templates_init(nullptr, source, BOS, EOS);
        const std::string used = common_chat_templates_source(templates.get());
        const common_chat_template tmpl(used + "\n", BOS, EOS);   // the lexer drops one newline at the end
        std::set<std::string> stops, formats;
        for (const auto &conversation : conversations) {
            context.reset();
            std::string prompt, text;
            try {
                const auto params = common_chat_templates_apply(templates.get(), inputs_of(conversation));
                prompt = named(params.prompt);
                formats.insert(common_chat_format_name(params.format));
                stops.insert(params.additional_stops.begin(), params.additional_stops.end());
            } catch (const std::exception &e) { prompt = quoted(e.what()); }
            if (!context) throw std::runtime_error(name + ": no context: " + prompt);
            try {
                text = named(render(tmpl, *context));
            } catch (const std::exception &e) { text = quoted(e.what()); }
            const auto [at, is_new] = contexts.emplace(context->dump(), lines.size());
            if (is_new) lines.push_back(at->first);
            expected << name << '\t' << conversation.at("name").get<std::string>() << '\t' << at->second << '\t' << text
                     << '\t' << (prompt == text ? "=" : prompt) << '\n';
        }
        json found;
        for (const auto &[ability, has] : common_chat_templates_get_caps(templates.get())) found[ability] = has;
        // common_chat_templates_init takes a check out of two templates.
        found["is_changed"] = used != jinja::lexer().tokenize(source).source;
        found["stops"] = stops;
        found["formats"] = formats;
        about << (path == sources.front() ? "" : ",\n") << ' ' << json(name).dump() << ": " << found.dump();
    }
    about << "\n}\n";
    std::ofstream out(folder / "contexts.json"), all(folder / "texts.json");
    out << "[\n";
    for (const auto &line : lines) out << line << (&line == &lines.back() ? "\n]\n" : ",\n");
    all << "{\n";
    for (const auto &one : texts) {
        all << json(one.first).dump() << ": " << json(one.second).dump() << (one == *texts.rbegin() ? "\n}\n" : ",\n");
    }
    return out && all && expected && about ? 0 : 1;
}
