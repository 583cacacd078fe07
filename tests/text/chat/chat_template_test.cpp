#include "model/text/chat/chat_template.hpp"
#include "model/text/utf8.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <thread>

namespace millrace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ChatInput say(const std::string& content, const std::string& role = "user") {
  ChatInput input;
  input.turns.push_back({role, content, {}, {}, {}});
  return input;
}

RenderedPrompt render(const std::string& text, const ChatInput& input = say("hello"),
                      ChatTemplateOptions options = {}) {
  options.bos_token = "<s>";
  options.eos_token = "</s>";
  return ChatTemplate(text, options).render(input);
}

/// What the template's error says; empty if there is none.
std::string error_of(const std::string& text, const ChatInput& input = say("hello"),
                     ChatTemplateOptions options = {}) {
  try {
    render(text, input, options);
    return "";
  } catch (const TemplateError& error) {
    return error.what();
  }
}

/// The text with what is not trusted in brackets.
std::string marked(const RenderedPrompt& prompt) {
  std::string result;
  size_t done = 0;
  const auto untrusted = [&](size_t end) {
    if (end > done)
      result += "[" + prompt.text.substr(done, end - done) + "]";
  };
  for (const auto& [begin, end] : prompt.trusted) {
    untrusted(begin);
    result += prompt.text.substr(begin, end - begin);
    done = end;
  }
  untrusted(prompt.text.size());
  return result;
}

std::string marked(const std::string& text, const ChatInput& input = say("hello")) {
  return marked(render(text, input));
}

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t size = utf8_character_size(text);
    if (size == 0)
      return false;
    text.remove_prefix(size);
  }
  return true;
}

// Where each byte comes from

TEST(ChatTemplateProvenance, FollowsTextThroughOperators) {
  EXPECT_EQ(marked("{% set c = messages[0].content %}a{{ 'b' + c + 'd' }}{{ c ~ '!' ~ c }}"),
            "ab[hello]d[hello]![hello]");
  EXPECT_EQ(
      marked(
          "{% set c = messages[0].content %}{{ ('x' + c + 'yz')[0:3] }}|{{ ('x' + c)[::-1] }}|{{ c * 2 }}"),
      "x[he]|[olleh]x|[hellohello]");
  EXPECT_EQ(marked("{{ '%s-%5s.' % (messages[0].content, 'x') }}"), "[hello]-    x.");
  EXPECT_EQ(marked("{{ bos_token }}{{ messages[0].role }}{{ eos_token }}"), "<s>[user]</s>");
}

TEST(ChatTemplateProvenance, FollowsTextThroughMethodsAndFilters) {
  const ChatInput input = say(" a,B ");
  EXPECT_EQ(
      marked("{% set c = '<' ~ messages[0].content ~ '> ' %}{{ c.strip() }}{{ c | upper }}{{ c.lower() }}",
             input),
      "<[ a,B ]><[ A,B ]> <[ a,b ]> ");
  EXPECT_EQ(marked("{{ messages[0].content.split(',') | join('+') }}", input), "[ a]+[B ]");
  EXPECT_EQ(
      marked("{{ messages[0].content | replace(',', ';') }}{{ 'x,y' | replace('x', messages[0].content) }}",
             input),
      "[ a];[B  a,B ],y");
  EXPECT_EQ(marked("{{ messages[0].content | trim | indent(2, true) }}{{ messages[0].content | e }}", input),
            "  [a,B a,B ]");
  EXPECT_EQ(marked("{% set x %}<{{ messages[0].content }}>{% endset %}{{ x }}", input), "<[ a,B ]>");
  EXPECT_EQ(marked("{% macro m(x) %}({{ x }}{{ caller() }}){% endmacro %}{% call m(messages[0].content) "
                   "%}!{% endcall %}",
                   input),
            "([ a,B ]!)");
}

TEST(ChatTemplateProvenance, FollowsTextIntoPrintedValues) {
  const ChatInput input = say("a\"b\n");
  EXPECT_EQ(marked("{{ {'k': messages[0].content} | tojson }}", input), "{\"k\": \"[a\\\"b\\n]\"}");
  EXPECT_EQ(marked("{{ [messages[0].content, 1] }}", input), "['[a\"b\\n]', 1]");
  ChatInput with_arguments = say("x");
  with_arguments.arguments = R"({"n": 5, "k": {"key": [1.5, true]}})";
  EXPECT_EQ(marked("{{ n }}{{ n + 1 }}{{ 1 }}{{ k | tojson }}{{ k.items() | list }}", with_arguments),
            "[56]1{\"[key]\": [[1.5], true]}[('[key]', [[1.5], True])]");
  EXPECT_EQ(marked("{{ messages[0].content | int + 1 }}{{ messages | length }}", say("41")), "[42]1");
}

TEST(ChatTemplateProvenance, DoesNotTrustWhatIsAskedForByAKeyOfTheInput) {
  ChatInput input = say("x");
  input.tools = R"([{"secret": "value"}])";
  EXPECT_EQ(marked("{% for k, v in tools[0].items() %}{{ k }}={{ v }}{% endfor %}", input),
            "[secret]=[value]");
}

// Errors

TEST(ChatTemplateErrors, CarryTheTemplatesOwnMessage) {
  EXPECT_EQ(error_of("{{ raise_exception('Roles must alternate') }}"), "Roles must alternate");
}

TEST(ChatTemplateErrors, HoldNoTextOfTheInput) {
  ChatInput input = say("SECRET", "SECRET");
  input.tools = R"({"SECRET": "SECRET"})";
  EXPECT_THAT(error_of("x", input), Not(HasSubstr("SECRET")));
  input.tools = R"([{"SECRET": "SECRET"}])";
  input.arguments = R"({"SECRET": "SECRET"})";
  for (const char* text :
       {"{{ raise_exception('role ' ~ messages[0].role ~ '!') }}", "{{ {}[messages[0].role].x }}",
        "{{ messages[0].role + 1 }}", "{{ messages[0].role() }}", "{{ messages[0].role % 1 }}",
        "{{ namespace(a=1)[messages[0].role].x }}", "{{ messages[0].role.split('').x.y }}",
        "{{ [1] | map(messages[0].role) }}",
        "{{ 1 | int(base=messages[0].role) }}{{ raise_exception(messages[0]) }}", "{{ dict(**tools[0])() }}",
        "{% macro m() %}{% endmacro %}{{ m(**tools[0]) }}", "{{ raise_exception(tools) }}",
        "{{ messages[0].role.x.y }}", "{{ {'a': messages[0].role}.b.c }}", "{{ '{x'.format() }}",
        "{{ range(messages[0].role) }}"}) {
    const std::string error = error_of(text, input);
    EXPECT_NE(error, "") << text;
    EXPECT_THAT(error, Not(HasSubstr("SECRET"))) << text;
  }
  EXPECT_EQ(error_of("{{ raise_exception('no role ' ~ messages[0].role ~ '!') }}", input), "no role …!");
}

TEST(ChatTemplateErrors, AreShortAndValidUtf8) {
  for (const std::string text :
       {"{{ raise_exception('\xe4\xbd\xa0' * 1000) }}", "{{ raise_exception('\xff\xfe') }}",
        "{{ raise_exception('\xf0\x9f' ~ 'x') }}"}) {
    const std::string error = error_of(text);
    EXPECT_TRUE(is_valid_utf8(error));
    EXPECT_LE(error.size(), 512U);
    EXPECT_GT(error.size(), 0U);
  }
  EXPECT_LE(error_of("{{ " + std::string(10'000, 'x') + ".y }}").size(), 512U);
  EXPECT_LE(error_of("{% " + std::string(10'000, 'x') + " %}").size(), 512U);
}

TEST(ChatTemplateErrors, NameTheLine) {
  EXPECT_EQ(error_of("a\n{{ 1 | nosuch }}"), "line 2: no filter named 'nosuch'");
  EXPECT_EQ(error_of("a\n\n{{ missing.x }}"), "line 3: 'missing' is undefined");
  EXPECT_EQ(error_of("{% if 1 %}\n"), "line 1: unexpected end of template: looking for 'endif'");
}

// Input

TEST(ChatTemplateInput, RefusesArgumentsThatWouldReplaceWhatIsSet) {
  ChatInput input = say("x");
  for (const char* name : {"messages", "tools", "bos_token", "eos_token", "add_generation_prompt",
                           "raise_exception", "range", "namespace", "strftime_now", "dict"}) {
    input.arguments = std::string("{\"") + name + "\": 1}";
    EXPECT_EQ(error_of("x", input), std::string("the template's arguments may not set ") + name);
  }
  input.arguments = R"({"enable_thinking": false, "documents": []})";
  EXPECT_EQ(render("{{ enable_thinking }}{{ documents }}", input).text, "False[]");
}

TEST(ChatTemplateInput, RefusesWhatIsNoJsonOfItsShape) {
  const std::vector<std::string> bad = {
      "", "{", "nul", "[1,]", "\xff", "1", "\"x\"", "{\"a\": 1e999}", "[\"\\ud800\"]"};
  for (const std::string& json : bad) {
    ChatInput tools = say("x"), arguments = say("x"), calls = say("x");
    tools.tools = arguments.arguments = calls.turns[0].tool_calls = json;
    EXPECT_NE(error_of("x", tools), "") << json;
    EXPECT_NE(error_of("x", arguments), "") << json;
    EXPECT_NE(error_of("x", calls), "") << json;
  }
  ChatInput big = say("x");
  big.arguments = R"({"n": 9223372036854775808})";
  EXPECT_EQ(error_of("x", big), "the template's arguments has a number beyond 64 bits");
}

TEST(ChatTemplateInput, CapsTheNestingOfJson) {
  for (const auto& [levels, accepted] :
       {std::pair(64, true), {65, false}, {3'000, false}, {1'000'000, false}}) {
    ChatInput input = say("x");
    input.tools = std::string(levels, '[') + std::string(levels, ']');
    EXPECT_EQ(error_of("{{ tools }}{{ tools | tojson }}", input),
              accepted ? "" : "tools has more than 64 levels")
        << levels;
    input.tools = {};
    input.arguments = R"({"x": )" + std::string(levels - 1, '[') + std::string(levels - 1, ']') + "}";
    EXPECT_EQ(error_of("{{ x }}", input).empty(), accepted) << levels;
    input.arguments = {};
    input.turns[0].tool_calls = std::string(levels, '[') + std::string(levels, ']');
    EXPECT_EQ(error_of("{{ messages }}", input).empty(), accepted) << levels;
  }
}

TEST(ChatTemplateInput, GivesArgumentsOfCallsAsObjectsWhereTheyAre) {
  ChatInput input = say("x");
  const auto type_of = [&](const std::string& arguments) {
    input.turns[0].tool_calls = R"([{"function": {"name": "f", "arguments": )" + arguments + "}}]";
    return render("{% set a = messages[0].tool_calls[0].function.arguments %}"
                  "{{ 'object' if a is mapping else 'text' if a is string else 'other' }}",
                  input)
        .text;
  };
  EXPECT_EQ(type_of(R"("{\"a\": 1}")"), "object");
  EXPECT_EQ(type_of(R"({"a": 1})"), "object");
  EXPECT_EQ(type_of(R"("{broken")"), "text");
  EXPECT_EQ(type_of(R"("[1]")"), "text");
  EXPECT_EQ(type_of("\"" + std::string(1, '{') + "\""), "text");
}

TEST(ChatTemplateInput, KeepsBytesThatAreNoText) {
  EXPECT_EQ(
      render("{{ messages[0].content }}|{{ messages[0].content | upper }}|{{ messages[0].content | length }}",
             say("a\xff\xe4\xbd"))
          .text,
      "a\xff\xe4\xbd|A\xff\xe4\xbd|4");
}

TEST(ChatTemplateInput, TellsTheTimeItIsGiven) {
  ChatTemplateOptions options;
  options.now = 86400 * 400;
  EXPECT_EQ(render("{{ strftime_now('%Y') }}", say("x"), options).text, "1971");
  ChatInput later = say("x");
  later.now = 86400 * 800;
  EXPECT_EQ(render("{{ strftime_now('%Y') }}", later, options).text, "1972");
  EXPECT_GE(render("{{ strftime_now('%Y') }}").text, "2024");
  EXPECT_NE(error_of("{{ strftime_now('%Y' * 1000) }}"), "");
}

TEST(ChatTemplate, HasAPlainFormForModelsWithoutOne) {
  ChatInput input = say("Be kind.", "system");
  input.turns.push_back({"user", "Hi", {}, {}, {}});

  EXPECT_EQ(marked(render(std::string(ChatTemplate::plain()), input)),
            "[system]: [Be kind.]\n\n[user]: [Hi]\n\nassistant:");
  input.add_generation_prompt = false;
  EXPECT_EQ(render(std::string(ChatTemplate::plain()), input).text, "system: Be kind.\n\nuser: Hi\n\n");
}

TEST(ChatTemplate, KeepsItsSource) {
  EXPECT_EQ(ChatTemplate("a\r\n{{ 1 }}\n", {}).source(), "a\r\n{{ 1 }}\n");
}

TEST(ChatTemplate, RendersOnManyThreadsAtOnce) {
  const ChatTemplate shared(
      "{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}",
      {});
  std::vector<std::thread> threads;
  std::vector<std::string> results(4);
  for (std::string& result : results)
    threads.emplace_back([&shared, &result] {
      for (int i = 0; i < 50; ++i)
        result = shared.render(say("x")).text;
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_THAT(results, ::testing::Each("1"));
}

// Fuel: whatever a template does, it ends soon

struct Hostile {
  std::string name, text;
};

void PrintTo(const Hostile& hostile, std::ostream* out) {
  *out << hostile.name;
}

std::string repeated(const std::string& unit, int times) {
  std::string result;
  for (int i = 0; i < times; ++i)
    result += unit;
  return result;
}

const std::vector<Hostile> kHostile = {
    {"NestedLoops", "{% for a in range(999) %}{% for b in range(999) %}{% for c in range(999) %}{% endfor "
                    "%}{% endfor %}{% endfor %}"},
    {"HugeRange", "{{ range(10 ** 9) | length }}"},
    {"LargestRange", "{% for i in range(1000) %}{% set x = range(100000) %}{% endfor %}"},
    {"StringMultiplication", "{{ 'x' * 10 ** 12 }}"},
    {"StringMultiplicationOverflow", "{{ 'xx' * 9223372036854775807 }}"},
    {"EmptyMultiplication", "{{ [] * 9223372036854775807 }}{{ '' * 9223372036854775807 }}{{ 1 / 0 }}"},
    {"ListMultiplication", "{{ [1] * 10 ** 12 }}"},
    {"Doubling", "{% set ns = namespace(s='xxxxxxxx') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s "
                 "%}{% endfor %}"},
    {"DoublingLists",
     "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}"},
    {"SharedTuples", "{% set ns = namespace(s=(1,)) %}{% for i in range(100) %}{% set ns.s = (ns.s, ns.s) "
                     "%}{% endfor %}{{ ns.s }}"},
    {"SharedTuplesCompared", "{% set ns = namespace(s=(1,), t=(1,)) %}{% for i in range(100) %}{% set ns.s = "
                             "(ns.s, ns.s) %}{% set ns.t = (ns.t, ns.t) %}{% endfor %}{{ ns.s == ns.t }}"},
    {"SharedTuplesHashed", "{% set ns = namespace(s=(1,)) %}{% for i in range(100) %}{% set ns.s = (ns.s, "
                           "ns.s) %}{% endfor %}{{ {ns.s: 1} }}"},
    {"SharedListsInJson", "{% set ns = namespace(s=[1]) %}{% for i in range(100) %}{% set ns.s = [ns.s, "
                          "ns.s] %}{% endfor %}{{ ns.s | tojson }}"},
    {"DeepLists",
     "{% set ns = namespace(s=[]) %}{% for i in range(100000) %}{% set ns.s = [ns.s] %}{% endfor %}"},
    {"DeepDicts",
     "{% set ns = namespace(s={}) %}{% for i in range(100000) %}{% set ns.s = {'a': ns.s} %}{% endfor %}"},
    {"SelfCallingMacro", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}"},
    {"SelfCallingMacros", "{% macro m(n) %}{{ m(n) }}{{ m(n) }}{% endmacro %}{{ m(1) }}"},
    {"WideMacros",
     "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}"},
    {"SelfCallingCaller",
     "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{% call m() %}x{% endcall %}"},
    {"MacroInDefault", "{% macro m(a=m()) %}{% endmacro %}{{ m() }}"},
    {"DeepParentheses", "{{ " + std::string(100'000, '(') + "1" + std::string(100'000, ')') + " }}"},
    {"DeepLists2", "{{ " + std::string(100'000, '[') + std::string(100'000, ']') + " }}"},
    {"ManyNots", "{{ " + repeated("not ", 100'000) + "1 }}"},
    {"ManySigns", "{{ " + std::string(100'000, '-') + "1 }}"},
    {"ManyAttributes", "{{ x" + repeated(".a", 100'000) + " }}"},
    {"ManyAdditions", "{{ 1" + repeated(" + 1", 100'000) + " }}"},
    {"ManyPowers", "{{ 1" + repeated(" ** 1", 100'000) + " }}"},
    {"ManyFilters", "{{ 1" + repeated("|abs", 100'000) + " }}"},
    {"ManyConditions", "{{ 1" + repeated(" if 1 else 1", 80'000) + " }}"},
    {"ManyConditions2", "{{ 1" + repeated(" if 1", 100'000) + " }}"},
    {"ManyCalls", "{{ x" + repeated("()", 100'000) + " }}"},
    {"DeepIfs", repeated("{% if 1 %}", 50'000) + repeated("{% endif %}", 50'000)},
    {"DeepLoops", repeated("{% for a in b %}", 30'000)},
    {"DeepTargets",
     "{% for " + std::string(100'000, '(') + "a" + std::string(100'000, ')') + " in b %}{% endfor %}"},
    {"ScanningSearch", "{% set a = 'a' * 4000000 %}{% set b = 'a' * 2000000 + 'b' %}{% for i in "
                       "range(100000) %}{{ b in a }}{% endfor %}"},
    {"BackwardSearch", "{% set a = 'a' * 4000000 %}{% set b = 'b' + 'a' * 2000000 %}{% for i in "
                       "range(100000) %}{{ a.rfind(b) }}{% endfor %}"},
    {"BackwardSplit",
     "{% set a = 'ab' * 1000000 %}{% for i in range(100000) %}{% set x = a.rsplit('a') %}{% endfor %}"},
    {"BigDictKeys",
     "{% set a = 'a' * 4000000 %}{% set d = {a: 1} %}{% for i in range(100000) %}{{ a in d }}{% endfor %}"},
    {"BigComparisons", "{% set a = 'a' * 4000000 %}{% set b = 'a' * 4000000 %}{% for i in range(100000) %}{{ "
                       "a == b }}{{ a < b }}{% endfor %}"},
    {"BigCharacters",
     "{% set a = 'é' * 1000000 %}{% for i in range(100000) %}{{ a[999999] }}{{ a | length }}{% endfor %}"},
    {"BigSlices",
     "{% set a = range(100000) | list %}{% for i in range(100000) %}{% set b = a[1:] %}{% endfor %}"},
    {"BigCase", "{% set a = 'é' * 1000000 %}{% for i in range(100000) %}{% set b = a | upper %}{% endfor %}"},
    {"BigTitle",
     "{% set a = 'é ' * 1000000 %}{% for i in range(100000) %}{% set b = a | title %}{% endfor %}"},
    {"BigEscapes",
     "{% set a = '\"' * 1000000 %}{% for i in range(100000) %}{% set b = a | tojson %}{% endfor %}"},
    {"BigIndent", "{{ {'a': {'b': {'c': 1}}} | tojson(indent=1000000000) }}"},
    {"BigIndent2", "{{ ('x\n' * 100000) | indent(1000000) }}"},
    {"BigWidth", "{{ '%1000000000d' % 1 }}"},
    {"BigZeros", "{{ '%01000000000d' % 1 }}"},
    {"BigPrecision", "{{ '%.1000000000f' % 1 }}"},
    {"BigReplace", "{{ ('a' * 1000000).replace('a', 'b' * 1000000) }}"},
    {"BigReplaceOfNothing", "{{ ('a' * 1000000).replace('', 'b' * 1000) }}"},
    {"BigJoin", "{% set l = ['x' * 1000000] * 100000 %}{{ l | join('y' * 1000000) }}"},
    {"BigOutput", "{% set a = 'x' * 1000000 %}{% for i in range(100000) %}{{ a }}{% endfor %}"},
    {"BigSort", "{% set a = ('a' * 1000 ~ 'b') %}{% for i in range(10000) %}{% set x = range(1000) | reverse "
                "| sort %}{% endfor %}"},
    {"BigSum",
     "{{ range(100000) | map('string') | sum(start='') }}{{ ([['x'] * 1000] * 100000) | sum(start=[]) }}"},
    {"BigUnique", "{% set a = 'a' * 100000 %}{% for i in range(100000) %}{% set x = [a, a] | unique | list "
                  "%}{% endfor %}"},
    {"BigSplit", "{% set a = 'a ' * 1000000 %}{{ a.split() | length }}{{ a.split(' ') | length }}"},
    {"BigStrip",
     "{% set a = ' ' * 4000000 %}{% for i in range(100000) %}{{ a.strip() }}{{ a.strip(' ') }}{% endfor %}"},
    {"BigStripSet", "{% set a = 'a' * 4000000 %}{% for i in range(100000) %}{{ 'b'.strip(a) }}{% endfor %}"},
    {"MappedMaps",
     "{% for i in range(1000000) %}{{ [[[1]]] | map('map', 'map', 'abs') | list }}{% endfor %}"},
    {"SelfSelecting", "{{ [[1]] | map('map'" + repeated(", 'map'", 5'000) + ") | list }}"},
    {"ManyArguments", "{% macro m() %}{{ m(*varargs, *varargs) }}{% endmacro %}{{ m(1) }}"},
    {"GrowingArguments", "{% macro m() %}{{ m(*(varargs + varargs)) }}{% endmacro %}{{ m(1, 2, 3) }}"},
    {"ManyNamespaces", "{% for i in range(100000) %}{% for j in range(100000) %}{% set n = "
                       "namespace(a=namespace(), b=n) %}{% endfor %}{% endfor %}"},
    {"ManyMacros", "{% for i in range(100000) %}{% for j in range(1000) %}{% macro m() %}{% endmacro %}{% "
                   "endfor %}{% endfor %}"},
    {"DeepScopes",
     repeated("{% with %}", 150) +
         "{% for i in range(100000) %}{% for j in range(100000) %}{{ x }}{% endfor %}{% endfor %}" +
         repeated("{% endwith %}", 150)},
    {"RangesOfFormats", "{% for i in range(100000) %}{% for j in range(1000) %}{{ '%s' % i }}{{ "
                        "strftime_now('%Y%c%c%c%c') }}{% endfor %}{% endfor %}"},
};

class HostileTemplate : public ::testing::TestWithParam<Hostile> {};

TEST_P(HostileTemplate, EndsInAnErrorWithinASecond) {
  const auto start = std::chrono::steady_clock::now();

  EXPECT_NE(error_of(GetParam().text), "");

  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  EXPECT_LT(taken.count(), 20);
#else
  EXPECT_LT(taken.count(), 1);
#endif
}

INSTANTIATE_TEST_SUITE_P(Fuel, HostileTemplate, ::testing::ValuesIn(kHostile),
                         [](const auto& info) { return info.param.name; });

TEST(ChatTemplateFuel, EndsAMillionMessagesWithAnError) {
  ChatInput input;
  input.turns.resize(1'000'000, ChatTurn{"user", "x", {}, {}, {}});
  const auto start = std::chrono::steady_clock::now();

  EXPECT_THAT(error_of("{% for m in messages %}{{ m.content }}{% endfor %}", input),
              HasSubstr("too many steps"));

  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  EXPECT_LT(taken.count(), 5);
}

TEST(ChatTemplateFuel, LastsForALongConversation) {
  ChatInput input;
  const std::string long_text(2'000, 'x');
  for (int i = 0; i < 2'000; ++i)
    input.turns.push_back({i % 2 ? "assistant" : "user", long_text, {}, {}, {}});

  const RenderedPrompt prompt =
      render("{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + "
             "message.content | trim + '<|im_end|>' + '\n' }}{% endfor %}",
             input);

  EXPECT_GT(prompt.text.size(), 4'000'000U);
}

TEST(ChatTemplateFuel, CapsTheOutput) {
  ChatTemplateOptions options;
  options.max_output_bytes = 100;
  EXPECT_EQ(error_of("{% for i in range(10) %}0123456789{% endfor %}", say("x"), options), "");
  EXPECT_THAT(error_of("{% for i in range(11) %}0123456789{% endfor %}", say("x"), options),
              HasSubstr("too long a text"));
}

TEST(ChatTemplateFuel, RefusesTemplatesOfMoreThanAMebibyte) {
  EXPECT_EQ(error_of(std::string(1u << 20, 'x')), "");
  EXPECT_NE(error_of(std::string((1u << 20) + 1, 'x')), "");
}

TEST(ChatTemplateFuel, AllowsNestingUpToItsDepth) {
  ChatTemplateOptions options;
  const auto parentheses = [](int levels) {
    return "{{ " + std::string(levels, '[') + std::string(levels, ']') + " }}";
  };
  EXPECT_EQ(error_of(parentheses(100), say("x"), options), "");
  EXPECT_NE(error_of(parentheses(201), say("x"), options), "");
  EXPECT_EQ(error_of("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(150) }}",
                     say("x"), options),
            "");
}

} // namespace
} // namespace millrace
