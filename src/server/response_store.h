// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_RESPONSE_STORE_H_
#define HALFBYTE_SERVER_RESPONSE_STORE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "server/json.h"

namespace halfbyte::server {

/// A response of /v1/responses that may be asked for again.
struct StoredResponse {
  Json response;  // as it was answered, or stands
  Json messages;  // the conversation up to it, as a chat has it; the answer too, once it has ended
};

/// In memory, and bounded: the oldest are forgotten. Thread-safe.
class ResponseStore {
 public:
  static constexpr std::size_t kMaxResponses = 1024;
  static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;  // as text

  explicit ResponseStore(std::size_t max_responses = kMaxResponses,
                         std::size_t max_bytes = kMaxBytes)
      : max_responses_(max_responses), max_bytes_(max_bytes) {}

  /// One that is larger than all there is room for is not kept, here and below.
  void add(const std::string& id, StoredResponse stored);
  /// In the place of the one with this id, unless that is gone.
  void replace(const std::string& id, StoredResponse stored);
  /// Null: unknown, or forgotten.
  std::shared_ptr<const StoredResponse> find(const std::string& id) const;
  /// False when there was none.
  bool erase(const std::string& id);

 private:
  struct Entry {
    std::string id;
    std::shared_ptr<const StoredResponse> stored;
    std::size_t bytes = 0;
  };
  using Entries = std::list<Entry>;
  void remove(Entries::iterator entry);
  void forget_oldest();

  const std::size_t max_responses_;
  const std::size_t max_bytes_;
  mutable std::mutex mutex_;  // of the following
  Entries entries_;           // the oldest first
  std::unordered_map<std::string, Entries::iterator> by_id_;
  std::size_t bytes_ = 0;
};

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_RESPONSE_STORE_H_
