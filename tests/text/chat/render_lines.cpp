// Renders templates for tests that are written in Python: a JSON object a line in, one a line out.
//   {"template": …, "messages": [{"role": …, "content": …}], "tools": […], "arguments": {…}} and more, as
//   read below
//   {"text": …, "trusted": [[begin, end] …]} or {"error": …}

#include "tests/text/chat/chat_json.hpp"

#include <iostream>
#include <string>

int main() {
  std::ios::sync_with_stdio(false);
  for (std::string line; std::getline(std::cin, line);)
    std::cout << millrace::testing::rendered_json(nlohmann::ordered_json::parse(line)).dump() << "\n"
              << std::flush;
}
