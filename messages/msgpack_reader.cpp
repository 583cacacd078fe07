#include "messages/msgpack_reader.hpp"

#include "messages/codec.hpp"

#include <msgpack.hpp>

#include <array>
#include <span>

namespace millrace {
namespace {

std::string_view kind_of(const Scalar& value) {
  static constexpr std::array<std::string_view, std::variant_size_v<Scalar>> kKinds = {
      "nil", "a boolean", "an integer", "an integer", "a float", "a string", "bytes (bin)", "an extension"};
  return kKinds[value.index()];
}

/// Called by msgpack-c's parser, which keeps no tree and allocates only 8 bytes a level; levels are limited
/// here. Each callback returns false to stop. Counts of containers are never trusted: elements are taken as
/// they come.
class SlotVisitor : public msgpack::null_visitor {
public:
  explicit SlotVisitor(Slot root) : next_(root) {}

  const std::optional<Failure>& failure() const { return failure_; }

  bool visit_nil() { return scalar(Nil{}); }
  bool visit_boolean(bool value) { return scalar(value); }
  bool visit_positive_integer(uint64_t value) { return scalar(value); }
  bool visit_negative_integer(int64_t value) {
    // The signed encodings may hold non-negative numbers.
    return value < 0 ? scalar(value) : scalar(static_cast<uint64_t>(value));
  }
  bool visit_float32(float value) { return scalar(static_cast<double>(value)); }
  bool visit_float64(double value) { return scalar(value); }
  bool visit_str(const char* data, uint32_t size) {
    const std::string_view text(data, size);
    if (is_valid_utf8(text))
      return scalar(text);
    if (at_key() || !next_.type)
      return fail_frame("a string of the frame is not UTF-8");
    return fail_value("a string that is not UTF-8");
  }
  bool visit_bin(const char* data, uint32_t size) { return scalar(BytesView{{data, size}}); }
  bool visit_ext(const char*, uint32_t) { return scalar(Extension{}); }

  bool start_array(uint32_t) { return open(&SlotType::append, "an array"); }
  bool start_array_item() {
    Level& level = levels_[depth_ - 1];
    level.step.index = level.step.index ? *level.step.index + 1 : 0;
    if (level.slot.type && *level.step.index >= level.slot.type->max_elements)
      return fail_field(Error::invalid_field, "is one element too many");
    next_ = level.slot.type ? level.slot.type->append(level.slot.object) : Slot{};
    return true;
  }
  bool end_array() { return close(); }

  bool start_map(uint32_t) { return open(&SlotType::entry, "a map"); }
  bool start_map_key() {
    levels_[depth_ - 1].at_key = true;
    next_ = {};
    return true;
  }
  bool end_map_key() {
    levels_[depth_ - 1].at_key = false;
    return true;
  }
  bool start_map_value() {
    next_ = levels_[depth_ - 1].entry;
    return true;
  }
  bool end_map() {
    Level& level = levels_[depth_ - 1];
    if (level.slot.type && level.slot.type->missing) {
      const Missing missing = level.slot.type->missing(level.seen);
      level.step = {missing.field, {}};
      if (!missing.field.empty())
        return fail_field(missing.error, "is missing");
    }
    return close();
  }

  void parse_error(size_t, size_t) { fail_frame("the frame is not msgpack"); }
  void insufficient_bytes(size_t, size_t) { fail_frame("the frame ends too early"); }

private:
  /// An open container. step is where we are inside it; entry is the slot of the value after the key.
  struct Level {
    Slot slot;
    Slot entry;
    Step step;
    uint64_t seen = 0;
    bool at_key = false;
  };

  bool at_key() const { return depth_ > 0 && levels_[depth_ - 1].at_key; }

  bool scalar(const Scalar& value) {
    if (at_key())
      return key(levels_[depth_ - 1], value);
    if (!next_.type)
      return true;
    const Slot optional = next_;
    const bool present = optional.type->engage && !std::holds_alternative<Nil>(value);
    if (present)
      next_ = optional.type->engage(optional.object);
    if (next_.type->assign && next_.type->assign(next_.object, value))
      return true;
    if (present)
      optional.type->assign(optional.object, Nil{}); // what did not fit leaves nothing behind
    return fail_value(kind_of(value));
  }

  bool key(Level& level, const Scalar& value) {
    if (!level.slot.type)
      return true;
    const Entry entry = level.slot.type->entry(level.slot.object, value, level.seen);
    level.step = entry.step;
    level.entry = entry.slot;
    switch (entry.status) {
    case Entry::known:
    case Entry::unknown: return true;
    case Entry::repeated: return fail_field(Error::invalid_field, "is given twice");
    case Entry::bad_key: break;
    }
    return fail_field(Error::invalid_field,
                      level.slot.type->missing ? "a key must be a string" : "a key must be a token id");
  }

  template <class Member> bool open(Member SlotType::*operation, std::string_view kind) {
    if (depth_ == kMaxDepth)
      return fail_frame("the frame is nested too deeply");
    Slot slot = next_;
    if (at_key() && levels_[depth_ - 1].slot.type)
      return fail_field(Error::invalid_field, "a key must not be a container");
    if (slot.type && slot.type->engage)
      slot = slot.type->engage(slot.object);
    if (slot.type && !(slot.type->*operation))
      return fail_value(kind);
    levels_[depth_++] = {slot, {}, {}, 0, false};
    next_ = {};
    return true;
  }

  bool close() {
    --depth_;
    return true;
  }

  bool fail_value(std::string_view kind) {
    return fail_field(next_.type->error,
                      "must be " + std::string(next_.type->expected) + ", is " + std::string(kind));
  }
  bool fail_field(Error error, std::string message) {
    failure_ = {error, path(), std::move(message)};
    return false;
  }
  bool fail_frame(std::string message) {
    failure_ = {Error::malformed, "", std::move(message)};
    return false;
  }

  std::string path() const {
    std::string path;
    for (const Level& level : std::span(levels_).first(depth_)) {
      if (!level.step.field.empty())
        path.append(path.empty() ? "" : ".").append(level.step.field);
      else if (level.step.index)
        path.append("[").append(std::to_string(*level.step.index)).append("]");
    }
    return path;
  }

  std::array<Level, kMaxDepth> levels_;
  size_t depth_ = 0;
  Slot next_;
  std::optional<Failure> failure_;
};

} // namespace

std::optional<Failure> read_msgpack(std::string_view frame, Slot root) {
  if (frame.size() > kMaxFrameBytes)
    return Failure{Error::malformed, "",
                   "the frame is longer than " + std::to_string(kMaxFrameBytes) + " bytes"};
  SlotVisitor visitor(root);
  size_t offset = 0;
  msgpack::parse(frame.data(), frame.size(), offset, visitor);
  if (visitor.failure())
    return visitor.failure();
  if (offset != frame.size())
    return Failure{Error::malformed, "", "the frame holds bytes after its message"};
  return std::nullopt;
}

} // namespace millrace
