#pragma once

#include <functional>
#include <string_view>

namespace millrace {

/// What whoever runs the server should hear of: a device that was lost, a disk that takes nothing more. One
/// line, never with text of a client. Any thread; does not wait once a reporter is set.
void report(std::string_view part, std::string_view text);

/// Where reports go from now on: called on the thread that reports. An empty one: to stderr, as at the start.
void set_reporter(std::function<void(std::string_view part, std::string_view text)> reporter);

} // namespace millrace
