// SPDX-License-Identifier: Apache-2.0
#include "server/random_id.h"

#include <random>

namespace halfbyte::server {

std::string random_id(std::string_view prefix) {
  constexpr std::string_view kAlphabet = "abcdefghijklmnopqrstuvwxyz234567";
  std::random_device random;
  std::string id(prefix);
  for (int word = 0; word < 4; ++word) {
    unsigned bits = random();
    for (int i = 0; i < 6; ++i, bits >>= 5) {
      id += kAlphabet[bits & 31];
    }
  }
  return id;
}

}  // namespace halfbyte::server
