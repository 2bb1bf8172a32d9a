// SPDX-License-Identifier: Apache-2.0
#include "server/response_store.h"

#include <iterator>
#include <utility>

namespace halfbyte::server {
namespace {

std::size_t size_of(const StoredResponse& stored) {
  return to_text(stored.response).size() + to_text(stored.messages).size();
}

}  // namespace

void ResponseStore::add(const std::string& id, StoredResponse stored) {
  const std::size_t bytes = size_of(stored);
  auto shared = std::make_shared<const StoredResponse>(std::move(stored));
  const std::lock_guard lock(mutex_);
  if (const auto found = by_id_.find(id); found != by_id_.end()) remove(found->second);
  if (bytes > max_bytes_) return;
  entries_.push_back({id, std::move(shared), bytes});
  by_id_.emplace(id, std::prev(entries_.end()));
  bytes_ += bytes;
  forget_oldest();
}

void ResponseStore::replace(const std::string& id, StoredResponse stored) {
  const std::size_t bytes = size_of(stored);
  auto shared = std::make_shared<const StoredResponse>(std::move(stored));
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return;
  if (bytes > max_bytes_) return remove(found->second);
  Entry& entry = *found->second;
  bytes_ += bytes - entry.bytes;
  entry.stored = std::move(shared);
  entry.bytes = bytes;
  forget_oldest();
}

std::shared_ptr<const StoredResponse> ResponseStore::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : found->second->stored;
}

bool ResponseStore::erase(const std::string& id) {
  const std::lock_guard lock(mutex_);
  const auto found = by_id_.find(id);
  if (found == by_id_.end()) return false;
  remove(found->second);
  return true;
}

void ResponseStore::remove(Entries::iterator entry) {
  bytes_ -= entry->bytes;
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

void ResponseStore::forget_oldest() {
  while (!entries_.empty() && (entries_.size() > max_responses_ || bytes_ > max_bytes_)) {
    remove(entries_.begin());
  }
}

}  // namespace halfbyte::server
