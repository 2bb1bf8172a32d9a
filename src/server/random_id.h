// SPDX-License-Identifier: Apache-2.0
#ifndef HALFBYTE_SERVER_RANDOM_ID_H_
#define HALFBYTE_SERVER_RANDOM_ID_H_

#include <string>
#include <string_view>

namespace halfbyte::server {

/// `prefix` and 24 random characters (a-z, 2-7: 120 bits). Thread-safe.
std::string random_id(std::string_view prefix);

}  // namespace halfbyte::server

#endif  // HALFBYTE_SERVER_RANDOM_ID_H_
