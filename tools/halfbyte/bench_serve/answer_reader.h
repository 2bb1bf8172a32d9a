// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_ANSWER_READER_H_
#define HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_ANSWER_READER_H_

#include <string>
#include <string_view>
#include <vector>

#include "bench_serve/outcome.h"

namespace halfbyte::tool {

/// Takes an event stream apart, however it was cut on its way (WHATWG HTML, "Server-sent events":
/// lines end with LF, CR or CRLF; other fields than data are ignored).
class SseReader {
 public:
  /// The data of the events that `bytes` complete.
  std::vector<std::string> feed(std::string_view bytes);

 private:
  void end_line(std::vector<std::string>& events);

  std::string line_;
  std::string data_;
  bool has_data_ = false;
  bool after_return_ = false;
};

/// Reads the answer to one request, chat or completion, into an Outcome.
class AnswerReader {
 public:
  AnswerReader(bool streams, Outcome& outcome) : streams_(streams), outcome_(outcome) {}

  /// Bytes of the body of a 200, and when they came.
  void feed(std::string_view bytes, double now);
  /// The body has ended.
  void finish(double now);
  /// The whole body of another status.
  void refuse(int status, std::string_view body);

 private:
  void take_event(const std::string& data, double now);
  void take_object(std::string_view text, double now);

  const bool streams_;
  Outcome& outcome_;
  SseReader events_;
  std::string body_;
  bool is_done_ = false;  // [DONE] has come
};

}  // namespace halfbyte::tool

#endif  // HALFBYTE_TOOLS_HALFBYTE_BENCH_SERVE_ANSWER_READER_H_
