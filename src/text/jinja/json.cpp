// SPDX-License-Identifier: Apache-2.0
#include "text/jinja/json.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <unordered_map>

namespace halfbyte::jinja {
namespace {

// Builds Values without recursion and without the quadratic key look-up of an ordered object.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return add(Value()); }
  bool boolean(bool value) override { return add(Value(value)); }
  bool number_integer(number_integer_t value) override { return add(Value(std::int64_t{value})); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= INT64_MAX) return add(Value(static_cast<std::int64_t>(value)));
    return add(big(std::to_string(value)));
  }
  bool number_float(number_float_t value, const string_t& source) override {
    const bool is_integer = source.find_first_of(".eE") == std::string::npos;
    return add(is_integer ? big(source) : Value(value));
  }
  bool string(string_t& value) override { return add(Value(std::move(value))); }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*size*/) override { return open(); }
  bool start_array(std::size_t /*size*/) override { return open(); }
  bool key(string_t& value) override {
    open_.back().keys.push_back(std::move(value));
    return true;
  }
  bool end_array() override {
    Value value = Value::list(std::move(open_.back().items));
    open_.pop_back();
    return add(std::move(value));
  }
  bool end_object() override {
    Value value = Value::dict(join(open_.back()));
    open_.pop_back();
    return add(std::move(value));
  }
  bool parse_error(std::size_t position,
                   const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    throw Failure(StatusCode::kInvalidArgument,
                  fmt::format("invalid JSON at byte {}: {}", position, error.what()));
  }
  Value take() { return std::move(root_); }

 private:
  struct Open {
    std::vector<std::string> keys;  // of an object, as many as items
    List items;
  };

  static Value big(std::string digits) {
    return Value(BigInteger{std::make_shared<const std::string>(std::move(digits))});
  }
  // A key that comes twice keeps its first place and its last value, as in Python.
  static Dict join(Open& open) {
    Dict dict;
    std::unordered_map<std::string, std::size_t> places;
    for (std::size_t i = 0; i < open.items.size(); ++i) {
      const auto [it, is_new] = places.emplace(open.keys[i], dict.size());
      if (is_new) {
        dict.emplace_back(std::move(open.keys[i]), std::move(open.items[i]));
      } else {
        dict[it->second].second = std::move(open.items[i]);
      }
    }
    return dict;
  }
  bool open() {
    if (open_.size() >= kMaxValueDepth) {
      throw Failure(StatusCode::kInvalidArgument,
                    fmt::format("JSON is nested deeper than {} levels", kMaxValueDepth));
    }
    open_.emplace_back();
    return true;
  }
  bool add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }

  std::vector<Open> open_;
  Value root_;
};

void append_json_string(std::string_view text, std::string& out) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

class Writer {
 public:
  Writer(std::optional<std::int64_t> indent, Budget& budget) : indent_(indent), budget_(budget) {}

  void write(const Value& value, std::int64_t level) {
    const std::size_t before = out_.size();
    if (value.is_dict()) {
      write_dict(value.as_dict(), level + 1);
    } else if (value.is_list()) {
      write_list(value.as_list(), level + 1);
    } else {
      write_scalar(value);
      budget_.make(out_.size() - before);
    }
    if (out_.size() > Budget::kMaxBytes) budget_.make(out_.size());
  }
  std::string take() { return std::move(out_); }

 private:
  void write_scalar(const Value& value) {
    if (value.is_string()) {
      append_json_string(value.as_string(), out_);
    } else if (value.is_none()) {
      out_ += "null";
    } else if (value.is_bool()) {
      out_ += value.as_bool() ? "true" : "false";
    } else if (value.is_number()) {
      append_text(value, budget_, out_);
    } else {
      throw type_error(
          fmt::format("Object of type {} is not JSON serializable", value.type_name()));
    }
  }
  void new_line(std::int64_t level) {
    if (!indent_) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(*indent_ * level), ' ');
  }
  void separate(bool is_first, std::int64_t level) {
    if (!is_first) out_ += indent_ ? "," : ", ";
    new_line(level);
  }
  void write_dict(const Dict& dict, std::int64_t level) {
    out_ += '{';
    for (const auto& item : dict) {
      separate(&item == &dict.front(), level);
      append_json_string(item.first, out_);
      out_ += ": ";
      write(item.second, level);
    }
    if (!dict.empty()) new_line(level - 1);
    out_ += '}';
  }
  void write_list(const List& list, std::int64_t level) {
    out_ += '[';
    for (const Value& item : list) {
      separate(&item == &list.front(), level);
      write(item, level);
    }
    if (!list.empty()) new_line(level - 1);
    out_ += ']';
  }

  std::optional<std::int64_t> indent_;
  Budget& budget_;
  std::string out_;
};

}  // namespace

Value parse_json(std::string_view text) {
  Builder builder;
  if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
    throw Failure(StatusCode::kInvalidArgument, "invalid JSON");
  }
  return builder.take();
}

std::string dump_json(const Value& value, std::optional<std::int64_t> indent, Budget& budget) {
  Writer writer(indent, budget);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace halfbyte::jinja
