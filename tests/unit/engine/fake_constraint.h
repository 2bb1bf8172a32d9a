// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_TESTS_UNIT_ENGINE_FAKE_CONSTRAINT_H_
#define HALFBYTE_TESTS_UNIT_ENGINE_FAKE_CONSTRAINT_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "halfbyte/engine.h"

namespace halfbyte::test {

/// Allows even ids only, also past the vocabulary, or fails in one way.
class FakeConstraint : public TokenConstraint {
 public:
  enum class Fault { kNone, kEmptyMask, kLastBitsOnly, kFillFails, kAcceptFails, kThrows };

  /// What it accepts is appended to `accepted`, which may be null and must outlive it.
  explicit FakeConstraint(std::vector<std::int32_t>* accepted = nullptr, Fault fault = Fault::kNone)
      : accepted_(accepted), fault_(fault) {}

  Status fill_mask(std::span<std::uint32_t> mask) override {
    if (fault_ == Fault::kThrows) throw std::runtime_error("out of grammar");
    if (fault_ == Fault::kFillFails) return {StatusCode::kInternal, "no mask today"};
    std::uint32_t word = 0x55555555U;
    if (fault_ == Fault::kEmptyMask) word = 0;
    if (fault_ == Fault::kLastBitsOnly) word = 0x80000000U;  // ids 31, 63, ..
    std::ranges::fill(mask, word);
    return {};
  }
  Status accept(std::int32_t token_id) override {
    if (fault_ == Fault::kAcceptFails || token_id % 2 != 0) {
      return {StatusCode::kInvalidArgument, "token " + std::to_string(token_id) + " refused"};
    }
    if (accepted_ != nullptr) accepted_->push_back(token_id);
    return {};
  }
  void rollback(int num_tokens) override {
    if (accepted_ != nullptr) {
      accepted_->resize(accepted_->size() - static_cast<std::size_t>(num_tokens));
    }
  }

 private:
  std::vector<std::int32_t>* accepted_;
  Fault fault_;
};

}  // namespace halfbyte::test

#endif  // HALFBYTE_TESTS_UNIT_ENGINE_FAKE_CONSTRAINT_H_
