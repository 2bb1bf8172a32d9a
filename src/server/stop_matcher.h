// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_STOP_MATCHER_H_
#define HALFBYTE_SERVER_STOP_MATCHER_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace halfbyte::server {

/// Finds stop strings in a text that comes in pieces, and holds back what could be the beginning
/// of one: the longest suffix that is a proper prefix of a stop string, and nothing more. The first
/// piece with which a string is complete ends the text; of several that are complete with it, the
/// one that begins first hits, of those that begin together the shortest. Thread rule: one thread.
class StopMatcher {
 public:
  /// No string is empty. `keep_match`: the string that hit stays in the text.
  StopMatcher(std::vector<std::string> stops, bool keep_match)
      : stops_(std::move(stops)), keep_match_(keep_match) {}

  /// Text that may be sent now. After a match: what precedes it, and nothing later.
  std::string push(std::string_view piece);
  /// The end of the text: what was held back.
  std::string finish();
  /// The string that hit.
  const std::optional<std::string>& matched() const { return matched_; }

 private:
  const std::string* find_match(std::size_t& begin) const;
  std::size_t num_held() const;

  std::vector<std::string> stops_;
  bool keep_match_;
  std::string unsent_;
  std::optional<std::string> matched_;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_STOP_MATCHER_H_
